"""Publishes a question: the part of a request's history that the conversation does not have yet, once.

That is one frame that requests an answer and expects the version with which the history was compared: if another client
publishes in between, the fold ignores it and the comparison is repeated. So two concurrent requests to one conversation
run one after the other, or the later one gets 409 (conversation busy), which OpenAI's clients retry by themselves.

**Repeated requests.** Those clients also retry after a timeout and after a 5xx, with the same bytes, and mark it
(`X-Stainless-Retry-Count`); any client can use `Idempotency-Key`. If the latest question in the conversation is this
request, and its answer was not cut off, the response follows that answer from its start: nothing is published twice,
and no model runs twice. If the answer was cut off or failed, the history decides as for any other request.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid5

from starlette.requests import Request

from frameledger.frames import (
    AnyFrame,
    FunctionCallCancelFrame,
    FunctionCallResultFrame,
    LLMContextFrame,
    LLMMessagesAppendFrame,
    LLMMessagesUpdateFrame,
    LLMRunFrame,
    LLMSetToolsFrame,
    LLMUpdateSettingsFrame,
)
from frameledger_services.client import ContextChangedError, PublishedFrame
from frameledger_services.gateway import call_settlement, client_tools, conversation_gate, preferences
from frameledger_services.gateway.append import KEYS
from frameledger_services.gateway.openai import client_answers, conversation, history
from frameledger_services.gateway.openai.client_answers import Calls
from frameledger_services.gateway.openai.conversation import Named
from frameledger_services.gateway.openai.history import Held, Plan
from frameledger_services.gateway.openai.request import CompletionRequest
from frameledger_services.gateway.parts import Parts
from frameledger_services.gateway.problems import ProblemError
from frameledger_services.store import client_calls, client_requests, conversation_state, offers
from frameledger_services.store.client_calls import ClientCall
from frameledger_services.store.client_requests import Question
from frameledger_services.store.contexts import StoredContext
from frameledger_services.store.conversation_state import Readiness

RETRY = "x-stainless-retry-count"

MOST_QUESTIONS = 10
"""How often one `Idempotency-Key` can ask: again after an answer that was cut off, or after others came in between."""

CUT_OFF = ("interrupted", "failed", "dropped", "replaced", "context_ended")
"""How a run ends that has not answered."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A question that is stored in the conversation."""

    context_id: str
    version: int
    """The version of its frame; the answer comes after it."""

    since: int | None = None
    """The version that announced the calls which it answers: of these some may still be open."""


class Asking:
    """One question, from a request to its frame."""

    def __init__(self, parts: Parts, request: Request, wanted: CompletionRequest, named: Named) -> None:
        self._parts = parts
        self._request = request
        self._wanted = wanted
        self._named = named
        self._key = preferences.idempotency_key(request)
        self._is_again = request.headers.get(RETRY, "0").strip() not in ("", "0")
        self._used = 0
        """How many of this key's questions are stored."""

    async def ask(self) -> Asked:
        """Publish the question. Returns once it is stored. Raises the problems `conversation-busy`, `key-reused`,
        `not-visible-yet`, and those of publishing."""
        until = conversation_gate.deadline()
        tries = 0
        while tries < conversation_gate.TRIES:
            found = await self._find()
            if (before := await self._asked_before(found)) is not None:
                return before
            self._check(found)
            self._parts.check_not_stopping(self._headers)
            if found.goes_on:
                await conversation_gate.wait_for_change(
                    self._parts, self._named.context_id, found.version, until, self._headers
                )
                continue
            tries += 1
            if (asked := await self._say(found)) is not None:
                return asked
        raise self._busy(conversation_gate.CHANGING)

    async def _find(self) -> Readiness:
        found = await self._read(self._named)
        if self._named.by == "front end" and self._is_aside(found):
            self._named = conversation.aside(self._named, self._wanted.messages)
            found = await self._read(self._named)
        return found

    async def _read(self, named: Named) -> Readiness:
        return await self._parts.database.read(conversation_state.readiness, named.context_id)

    def _is_aside(self, found: Readiness) -> bool:
        messages = self._wanted.messages
        if "~" in self._named.context_id[-13:]:
            return False
        return conversation.is_task(messages) or history.has_nothing_in_common(_held(found), messages)

    async def _asked_before(self, now: Readiness) -> Asked | None:
        """Returns this very question, if it was asked and its answer is there or comes."""
        if now.stored is None or not (self._key or self._is_again):
            return None
        context_id = self._named.context_id
        if self._key is not None:
            ids = [UUID(self._frame_id(number)) for number in range(MOST_QUESTIONS)]
            self._used, found = await self._parts.database.read(client_requests.asked_by, context_id, ids)
        else:
            found = await self._parts.database.read(client_requests.last_question, context_id)
        if found is None:
            return None
        if _request_of(found) != self._wanted.sha256:
            if self._key is not None:
                raise ProblemError(
                    "key-reused", "An earlier request with this Idempotency-Key had another body."
                )
            return None
        if not found.is_newest:
            raise self._busy("This request was answered before, and the conversation has continued since.")
        if found.newest_run is None or found.newest_run in CUT_OFF:
            return None
        return Asked(context_id, found.version, found.answered_version)

    def _check(self, found: Readiness) -> None:
        conversation_gate.check_answerable(
            self._named.context_id,
            is_parked=found.stored is not None and found.stored.parked_version is not None,
            is_recording=found.is_recording,
            headers=self._headers,
        )

    @property
    def _headers(self) -> Mapping[str, str]:
        return conversation.in_header(self._named.context_id)

    def _busy(self, why: str) -> ProblemError:
        return conversation_gate.busy(self._named.context_id, why, self._headers)

    def _full(self) -> ProblemError:
        return ProblemError(
            "answer-refused",
            "The conversation has no room for this result (its limits `context_messages` and `context_bytes`): the "
            "call is settled, and the model does not see what it said. A shorter history makes room.",
            headers=self._headers,
            code="context_full",
        )

    async def _say(self, found: Readiness) -> Asked | None:
        """Publish. Returns None if it has to be compared anew: somebody said something in between, or this said a
        part of it."""
        if found.stored is None:
            return await self._ask(await self._opening(), 0)
        version = await self._set_terms(found.stored)
        if version is None:
            return None
        sent, context_id = self._wanted.messages, self._named.context_id
        calls = await self._parts.database.read(
            client_calls.of_clients, context_id, client_answers.call_ids(sent)
        )
        held = _held(found)
        plan = self._plan(held, calls)
        given = client_answers.given(sent, [one.message for one in held], calls)
        # Who is told what came of another's answer leaves no call behind: it may be the other's to do.
        if not given and (told := await self._told(found, plan, calls)) is not None:
            return told
        if await self._leave(plan, {call.tool_call_id for call, _ in given}):
            return None
        if given:
            return await self._answer(
                given, found.version, has_more=plan.kind == "replace" or bool(plan.messages)
            )
        return await self._ask(self._question(plan), version)

    async def _ask(self, question: AnyFrame, version: int) -> Asked | None:
        stored = await self._publish(question, version)
        if stored is None or stored.version is None:
            return None
        return Asked(self._named.context_id, stored.version)

    async def _set_terms(self, stored: StoredContext) -> int | None:
        """Let the conversation have the settings and the functions of this request. Returns its version then; None if
        somebody said something in between. Whoever asks next says its own, so nothing is wrong if this goes no
        further."""
        version, terms = int(stored.version), stored.context.to_wire()
        frames: list[AnyFrame] = []
        if changes := self._wanted.changes(terms["settings"]):
            frames.append(LLMUpdateSettingsFrame(settings=changes))
        if (tools := client_tools.beside(terms["tools"], self._wanted.tools)) is not None:
            frames.append(LLMSetToolsFrame(tools=tuple(tools)))
        for frame in frames:
            set_ = await self._publish(frame, version)
            if set_ is None:
                return None
            version = set_.version or version
        return version

    def _plan(self, held: Sequence[Held], calls: Calls) -> Plan:
        sent, stored = self._wanted.messages, [one.message for one in held]
        if self._wanted.is_only_new:
            return Plan("append", tuple(client_answers.rest(sent, calls)))
        plan = history.plan(held, client_answers.rest(sent, calls))
        if not calls:
            return plan
        if plan.kind == "replace":
            return history.plan(held, client_answers.in_pairs(sent, stored, calls))
        # What somebody took out of the history stays out, unless it is among what is new.
        placed = client_answers.placed(stored, calls)
        whole = plan if len(placed) == len(calls) else history.plan(held, client_answers.rest(sent, placed))
        if whole.kind == "replace":
            return plan
        return Plan("append", tuple(client_answers.in_pairs(whole.messages, stored, calls)))

    async def _leave(self, plan: Plan, answered: Collection[str]) -> bool:
        """Cancel the calls of clients that this request leaves behind: those that an interruption has stopped, and, if
        it replaces the history, all of them, since their place goes. Returns whether there were any."""
        waiting = await self._parts.database.read(client_calls.waiting, self._named.context_id)
        left = call_settlement.abandoned(
            waiting, lambda call: call.tool_call_id in answered, is_replaced=plan.kind == "replace"
        )
        for call in left:
            about = self._about(call.function_name, call.tool_call_id, call.requested_version, "left")
            await self._say_of_call(FunctionCallCancelFrame(**about))
        return bool(left)

    async def _answer(
        self, given: Sequence[tuple[ClientCall, Any]], version: int, *, has_more: bool
    ) -> Asked | None:
        """Publish the results of calls. What else is said comes behind them, and asks for the answer. Returns None if
        that is to be said now."""
        stored: list[PublishedFrame] = []
        for number, (call, result) in enumerate(given, 1):
            about = self._about(
                call.function_name, call.tool_call_id, call.requested_version, self._wanted.sha256
            )
            marks = (
                self._marks()
                if number == len(given) and not has_more
                else {**self._marks(), "id": about["id"]}
            )
            frame = FunctionCallResultFrame(
                **{**about, **marks}, result=result, run_llm=False if has_more else None
            )
            stored.append(await self._say_of_call(frame))
        if any(one.reason == "context_full" for one in stored):
            raise self._full()
        if has_more or all(one.reason == "place_replaced" for one in stored):
            # Calls that have no place in the history any more are messages like others.
            return None
        since = min(call.requested_version for call, _ in given)
        counting = [one.version for one in stored if one.outcome == "applied" and one.version is not None]
        # Without any that counts, somebody else answered: what came of that is behind the version that was read.
        return Asked(self._named.context_id, min(counting, default=version), since)

    async def _told(self, found: Readiness, plan: Plan, calls: Calls) -> Asked | None:
        """Returns where the answer is of a request that ends with a result which says nothing new, unless it wants
        another answer."""
        said = client_answers.last(self._wanted.messages, calls)
        if said is None:
            return None
        context_id, (call, value) = self._named.context_id, said
        if plan.kind == "append" and not plan.messages:
            left = await self._parts.database.read(
                client_calls.left_since, context_id, call.requested_version
            )
            others = await self._parts.database.read(
                client_calls.others_waiting_since, context_id, call.requested_version
            )
            if others or any(not one.interrupted for one in left):
                # Of one answer's calls some are still open, and the model goes on when all have their results; or it
                # went on, and made others.
                return Asked(context_id, found.version, call.requested_version)
        if plan.kind == "replace" and call.settled_version is not None and value != call.result:
            held = [one.message for one in _held(found)]
            behind = _behind_result(held, call.tool_call_id)
            if behind is not None and not any(one.get("role") == "user" for one in behind):
                # Somebody else did the same and was first: what came of that is what there is to tell.
                return Asked(context_id, call.settled_version, call.requested_version)
        return None

    def _about(self, function_name: str, tool_call_id: str, version: int, what: str) -> dict[str, Any]:
        """What a frame says of a call. The same request gives it the same id: it counts once."""
        name = f"{self._named.context_id}\ncall\n{tool_call_id}\n{version}\n{what}"
        return call_settlement.frame_fields(str(uuid5(KEYS, name)), function_name, tool_call_id, version)

    async def _opening(self) -> AnyFrame:
        tools: list[dict[str, Any]] = []
        if self._parts.settings.gateway_openai_tools and not conversation.is_task(self._wanted.messages):
            tools = list((await self._parts.database.read(offers.tools_on_offer)).values())
        tools = client_tools.beside(tools, self._wanted.tools) or tools
        context = {
            "messages": self._wanted.messages,
            "tools": tools,
            "settings": self._wanted.changes({}),
        }
        return LLMContextFrame.model_validate({"context": context, "run_llm": True, **self._marks()})

    def _question(self, plan: Plan) -> AnyFrame:
        if plan.kind == "replace":
            return LLMMessagesUpdateFrame.model_validate(
                {"messages": plan.messages, "run_llm": True, **self._marks()}
            )
        if not plan.messages:
            return LLMRunFrame.model_validate(self._marks())
        return LLMMessagesAppendFrame.model_validate(
            {"messages": plan.messages, "run_llm": True, **self._marks()}
        )

    def _marks(self) -> dict[str, Any]:
        marks: dict[str, Any] = {
            "metadata": {client_requests.REQUEST: {"request_sha256": self._wanted.sha256}}
        }
        if self._key is not None:
            marks["id"] = self._frame_id(min(self._used, MOST_QUESTIONS - 1))
        return marks

    def _frame_id(self, number: int) -> str:
        return str(uuid5(KEYS, f"{self._named.context_id}\n{self._key}\nquestion\n{number}"))

    async def _publish(self, frame: AnyFrame, expected: int) -> PublishedFrame | None:
        """Publish a frame that counts only if nothing has changed. Returns None if it does not."""
        try:
            stored = await self._put(frame, expected)
        except ContextChangedError:
            return None
        if stored.outcome == "rejected":
            if stored.reason == "id_reused":
                # The same request came twice at once.
                return None
            raise ProblemError("erased", f"The conversation accepts no frames: {stored.reason}.")
        if stored.outcome != "applied":
            raise self._busy(f"The question is stored as {stored.outcome} ({stored.reason}).")
        return stored

    async def _say_of_call(self, frame: AnyFrame) -> PublishedFrame:
        """Publish a frame that settles a call, and counts if nobody else has settled that."""
        return await self._put(frame, None)

    async def _put(self, frame: AnyFrame, expected: int | None) -> PublishedFrame:
        return await call_settlement.publish(
            self._parts, self._request, self._named.context_id, frame, expected
        )


def _behind_result(
    held: Sequence[Mapping[str, Any]], tool_call_id: str
) -> Sequence[Mapping[str, Any]] | None:
    """The messages behind the newest result of a call; None if it is not there."""
    for place in range(len(held) - 1, -1, -1):
        if held[place].get("role") == "tool" and held[place].get("tool_call_id") == tool_call_id:
            return held[place + 1 :]
    return None


def _held(found: Readiness) -> list[Held]:
    if found.stored is None:
        return []
    messages = found.stored.context.to_wire()["messages"]
    cut = {f"run {run_id}" for run_id in found.cut_runs}
    answers = found.stored.answers or (None,) * len(messages)
    return [Held(message, answer in cut) for message, answer in zip(messages, answers, strict=True)]


def _request_of(question: Question) -> str | None:
    about = question.metadata.get(client_requests.REQUEST)
    found = about.get("request_sha256") if isinstance(about, Mapping) else None
    return found if isinstance(found, str) else None
