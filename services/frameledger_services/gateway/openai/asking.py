"""Publishes a question, the part of a request's history that the conversation does not have yet, exactly once.

A question is one frame that requests an answer and expects the version with which the history was compared: if another
client publishes in between, the fold ignores it and the comparison is repeated. So two concurrent requests to one
conversation run one after the other, or the later one gets 409 (conversation busy), which OpenAI's clients retry by
themselves.

**Repeated requests.** Those clients also retry after a timeout and after a 5xx, with the same bytes, and mark retries
(`X-Stainless-Retry-Count`); any client can use `Idempotency-Key`. If the latest question in the conversation is this
request, and its answer was not cut off, the response follows that answer from its start: nothing is published twice,
and no model runs twice. If the answer was cut off or failed, the history is compared as for any other request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Container, Mapping, Sequence
from typing import Any
from uuid import UUID

from starlette.requests import Request

from frameledger.frames import AnyFrame
from frameledger.tools import tool_names
from frameledger_services.client import ContextChangedError, PublishedFrame
from frameledger_services.gateway import conversation_gate, preferences, publishing
from frameledger_services.gateway.dependencies import Dependencies
from frameledger_services.gateway.openai import client_answers, conversation, history
from frameledger_services.gateway.openai.call_settling import CallSettling
from frameledger_services.gateway.openai.client_answers import CallsById
from frameledger_services.gateway.openai.conversation import Named
from frameledger_services.gateway.openai.history import Held, Plan
from frameledger_services.gateway.openai.question import AskedQuestion
from frameledger_services.gateway.openai.request import CompletionRequest
from frameledger_services.gateway.openai.request_frames import MAX_QUESTIONS, RequestFrames
from frameledger_services.gateway.openai.seen_messages import JsonObject
from frameledger_services.gateway.problems import ProblemError
from frameledger_services.store import (
    client_calls,
    client_requests,
    conversation_state,
    newest_requests,
    offers,
)
from frameledger_services.store.client_calls import ClientCall
from frameledger_services.store.client_requests import Question
from frameledger_services.store.contexts import StoredContext
from frameledger_services.store.conversation_state import Readiness

RETRY = "x-stainless-retry-count"

CUT_OFF = ("interrupted", "failed", "dropped", "replaced", "context_ended")
"""Statuses of runs that ended without a complete answer."""


class Asking:
    """One question: the way from a request to its frame."""

    def __init__(
        self, dependencies: Dependencies, request: Request, chat_request: CompletionRequest, named: Named
    ) -> None:
        self._dependencies = dependencies
        self._request = request
        self._chat_request = chat_request
        self._named = named
        self._key = preferences.idempotency_key(request)
        self._is_again = request.headers.get(RETRY, "0").strip() not in ("", "0")
        self._used = 0
        """The number of stored questions of this key."""

        self.may_be_again = self._key is not None or self._is_again
        """Whether this request may be a repetition."""

    async def ask(self) -> AskedQuestion:
        """Publish the question. Returns once it is stored. Raises the problems `conversation-busy`, `key-reused`,
        `not-visible-yet`, and those of publishing."""
        deadline = conversation_gate.deadline()
        tries = 0
        while tries < conversation_gate.TRIES:
            readiness = await self._find()
            if (before := await self._asked_before(readiness)) is not None:
                return before
            self._check(readiness)
            self._dependencies.check_not_stopping(self._headers)
            if readiness.goes_on:
                await conversation_gate.wait_for_change(
                    self._dependencies, self._named.context_id, readiness.version, deadline, self._headers
                )
                continue
            tries += 1
            if (question := await self._publish_new(readiness)) is not None:
                return question
        raise self._busy(conversation_gate.CHANGING)

    async def _find(self) -> Readiness:
        readiness = await self._read(self._named)
        if self._named.by == "front end" and await asyncio.to_thread(self._is_aside, readiness):
            self._named = conversation.aside(self._named, self._chat_request.messages)
            readiness = await self._read(self._named)
        return readiness

    async def _read(self, named: Named) -> Readiness:
        return await self._dependencies.database.read(conversation_state.readiness, named.context_id)

    def _is_aside(self, readiness: Readiness) -> bool:
        messages = self._chat_request.messages
        if "~" in self._named.context_id[-13:]:
            return False
        return conversation.is_task(messages) or history.has_nothing_in_common(_held(readiness), messages)

    async def _asked_before(self, now: Readiness) -> AskedQuestion | None:
        """Returns the question of this request if it was asked before, and its answer is complete or under way."""
        if now.stored is None or not self.may_be_again:
            return None
        context_id = self._named.context_id
        if self._key is not None:
            ids = [UUID(self._frames.question_id(number)) for number in range(MAX_QUESTIONS)]
            self._used, question = await self._dependencies.database.read(
                client_requests.asked_by, context_id, ids
            )
        else:
            question = await self._dependencies.database.read(client_requests.last_question, context_id)
        if question is None:
            return None
        if _request_of(question) != self._chat_request.sha256:
            if self._key is not None:
                raise ProblemError(
                    "key-reused", "An earlier request with this Idempotency-Key had another body."
                )
            return None
        if not question.is_newest:
            raise self._busy("This request was answered before, and the conversation has continued since.")
        if question.newest_run is None or question.newest_run in CUT_OFF:
            return None
        return AskedQuestion(context_id, question.version, question.answered_version)

    def _check(self, readiness: Readiness) -> None:
        conversation_gate.check_answerable(
            self._named.context_id,
            is_parked=readiness.stored is not None and readiness.stored.parked_version is not None,
            is_recording=readiness.is_recording,
            headers=self._headers,
        )

    @property
    def _frames(self) -> RequestFrames:
        return RequestFrames(self._named.context_id, self._chat_request, self._key, self._used)

    @property
    def _headers(self) -> Mapping[str, str]:
        return conversation.in_header(self._named.context_id)

    def _busy(self, why: str) -> ProblemError:
        return conversation_gate.busy(self._named.context_id, why, self._headers)

    async def _publish_new(self, readiness: Readiness) -> AskedQuestion | None:
        """Publish the new part. Returns None if the history has to be compared again: another client has published
        since, or this call has published a part."""
        if readiness.stored is None:
            return await self._ask(self._frames.opening(await self._served()), 0)
        version = await self._set_terms(readiness.stored)
        if version is None:
            return None
        sent, context_id = self._chat_request.messages, self._named.context_id
        calls = await self._dependencies.database.read(
            client_calls.of_clients, context_id, client_answers.call_ids(sent)
        )
        # In a thread: both may have megabytes.
        stored, plan, results = await asyncio.to_thread(self._compared, readiness, calls)
        settling = CallSettling(self._dependencies, self._request, self._frames)
        if not results:
            # A client that receives the answer to another client's result cancels no calls: the other may still settle
            # them.
            elsewhere = await settling.answered_elsewhere(readiness, stored, plan, calls)
            if elsewhere is not None:
                return elsewhere
        if await settling.leave(plan, {call.tool_call_id for call, _ in results}):
            return None
        if results:
            has_more = plan.kind == "replace" or bool(plan.messages)
            return await settling.answer(results, readiness.version, has_more=has_more)
        return await self._ask(self._frames.question(plan), version)

    async def _ask(self, question: AnyFrame, version: int) -> AskedQuestion | None:
        stored = await self._publish(question, version)
        if stored is None or stored.version is None:
            return None
        return AskedQuestion(self._named.context_id, stored.version)

    async def _set_terms(self, stored: StoredContext) -> int | None:
        """Give the conversation the settings and the functions of this request. Returns its version afterwards, or None
        if it has changed in between. If the process dies after this, no harm is done: the next request sets its own."""
        version = int(stored.version)
        for frame in self._frames.terms(stored.context.to_wire()):
            set_ = await self._publish(frame, version)
            if set_ is None:
                return None
            version = set_.version or version
        return version

    def _compared(
        self, readiness: Readiness, calls: CallsById
    ) -> tuple[Sequence[JsonObject], Plan, Sequence[tuple[ClientCall, Any]]]:
        """Returns the stored messages, the new part of the sent ones, and the results of calls among them."""
        held = _held(readiness, tool_names(self._chat_request.tools))
        stored = [one.message for one in held]
        results = client_answers.answered_calls(self._chat_request.messages, stored, calls)
        return stored, self._plan(held, calls), results

    def _plan(self, held: Sequence[Held], calls: CallsById) -> Plan:
        sent, stored = self._chat_request.messages, [one.message for one in held]
        rest = client_answers.rest(sent, calls)
        is_only_new = self._chat_request.is_only_new
        if is_only_new is None:
            made = client_answers.made(sent, calls.keys())
            repeated = history.repeated_end(held, rest, made=made)
            held = held if repeated is None else repeated
            is_only_new = repeated is None and not history.is_sent_again(held, rest, has_call=bool(made))
        if is_only_new:
            return Plan("append", tuple(rest))
        plan = history.plan(held, rest)
        if not calls:
            return plan
        if plan.kind == "replace":
            return history.plan(held, client_answers.in_pairs(sent, stored, calls))
        # Calls that were removed from the history stay out, unless the new messages have them.
        placed = client_answers.placed(stored, calls)
        full_plan = (
            plan if len(placed) == len(calls) else history.plan(held, client_answers.rest(sent, placed))
        )
        if full_plan.kind == "replace":
            return plan
        return Plan("append", tuple(client_answers.in_pairs(full_plan.messages, stored, calls)))

    async def _served(self) -> Sequence[dict[str, Any]]:
        """Returns the functions of live services, which a new conversation gets."""
        if not self._dependencies.settings.gateway_openai_tools or conversation.is_task(
            self._chat_request.messages
        ):
            return ()
        return list((await self._dependencies.database.read(offers.tools_on_offer)).values())

    async def _publish(self, frame: AnyFrame, expected: int) -> PublishedFrame | None:
        """Publish a frame that counts only if nothing has changed since the version `expected`. Returns None if
        something has."""
        try:
            stored = await publishing.publish(
                self._dependencies, self._request, self._named.context_id, frame, expected
            )
        except ContextChangedError:
            return None
        if stored.outcome == "rejected":
            if stored.reason == "id_reused":
                # The same request was sent twice at the same time.
                return None
            raise ProblemError("erased", f"The conversation accepts no frames: {stored.reason}.")
        if stored.outcome != "applied":
            raise self._busy(f"The question is stored as {stored.outcome} ({stored.reason}).")
        return stored


def _held(readiness: Readiness, functions: Container[str] = ()) -> list[Held]:
    """Returns the stored messages. `functions` are the client's own."""
    if readiness.stored is None:
        return []
    messages = readiness.stored.context.to_wire()["messages"]
    cut = {f"run {run_id}" for run_id in readiness.cut_runs}
    answers = readiness.stored.answers or (None,) * len(messages)
    before_calls = client_answers.before_calls(messages, functions)
    return [
        Held(message, answer in cut, is_beside)
        for message, answer, is_beside in zip(messages, answers, before_calls, strict=True)
    ]


def _request_of(question: Question) -> str | None:
    about = question.metadata.get(newest_requests.REQUEST)
    digest = about.get("request_sha256") if isinstance(about, Mapping) else None
    return digest if isinstance(digest, str) else None
