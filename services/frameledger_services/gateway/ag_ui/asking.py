"""Publishes a client's request to its conversation: answers to waiting calls, then the new part of its history.

The new part is one frame that requests an answer and expects the version with which the history was compared
(`history`): if another client publishes in between, the fold ignores it and the comparison is repeated. The id of each
frame is derived from the run's id and what it answers, so a repeated request publishes only the missing frames, and
gets the same response. The id of an ignored question is used up: the next comparison, even that of a repeated request,
takes another one. If another client has answered a call before, a later answer changes nothing, and its client receives
the run that the earlier answer started.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from starlette.requests import Request

from frameledger.frames import AnyFrame
from frameledger_services.client import ContextChangedError, PublishedFrame
from frameledger_services.gateway import conversation_gate, publishing
from frameledger_services.gateway.ag_ui import answers, history
from frameledger_services.gateway.ag_ui.answers import CallKey
from frameledger_services.gateway.ag_ui.call_settling import PLACE_REPLACED, CallSettling
from frameledger_services.gateway.ag_ui.request_frames import RequestFrames, of_entry, of_message
from frameledger_services.gateway.ag_ui.run_input import Message, RunInput
from frameledger_services.gateway.dependencies import Dependencies
from frameledger_services.gateway.problems import ProblemError
from frameledger_services.store import client_requests, conversation_state, offers
from frameledger_services.store.client_requests import AskedRun, FrameOutcome
from frameledger_services.store.conversation_state import Thread
from frameledger_services.store.frame_ids import frame_uuid
from frameledger_services.store.shown_messages import ShownMessage, shown_messages

CONTEXT_CHANGED = "context_changed"
"""The reason for which a question is not applied: another client published first."""

ASKS = tuple(f"ask {number}" for number in range(10 * conversation_gate.TRIES))
"""The names of the questions of one run (`frame_id`). A stored question uses up its name, whatever its outcome."""

POLL_SECONDS = 0.25
"""The interval at which a waiting request checks whether the client of the previous answer has left."""


@dataclass(frozen=True, slots=True)
class Question:
    """One request of a client."""

    dependencies: Dependencies
    request: Request
    run_request: RunInput
    frames: RequestFrames
    while_waiting: Callable[[], Awaitable[None]] | None = None
    """Called every `POLL_SECONDS` while the request waits for the previous answer."""

    async def ask(self) -> AskedRun:
        """Publish the request. Returns once it is stored. Raises the problems `conversation-busy`, `bad-parameter`,
        `key-reused`, `not-visible-yet`, and those of publishing."""
        stored = await self._stored()
        if (before := await self._asked_before(stored)) is not None:
            return before
        unused = _unused_asks(stored)
        if not unused:
            raise conversation_gate.busy(self.run_request.thread_id, conversation_gate.CHANGING)
        thread = await self._with_tools(await self._wait_until_free())
        results = answers.of_calls(thread, self.run_request.conversation)
        facts = await self._settling.client_calls()
        if not results and (settled := await self._settling.settled_by_another(thread, facts)) is not None:
            return settled
        thread = await self._without_abandoned(thread, results, facts)
        plan = await self._plan(thread.messages, self._without_answers(results), facts)
        if (answered := await self._settling.answer(thread, results)) is not None:
            await self._publish_after_answers(thread, plan, facts, unused[0])
            return answered
        if results:
            # Their calls are no longer in the history: they are messages like any other.
            plan = await self._plan(thread.messages, self.run_request.conversation, facts)
        if self.run_request.resume and plan.kind == "append" and not plan.messages:
            # These answers were given before, and there is nothing else to publish.
            return AskedRun(thread.version, self.run_request.run_id)
        return await self._publish_messages(thread, plan, facts, unused)

    async def _publish_messages(
        self, thread: Thread, plan: history.Plan, facts: Collection[str], unused: Sequence[str]
    ) -> AskedRun:
        """Publish the new messages, and compare the histories again whenever another client publishes in between."""
        for what in unused[: conversation_gate.TRIES]:
            asked_run = await self._publish_plan(thread, plan, what)
            if asked_run is not None:
                return asked_run
            thread = await self._with_tools(await self._wait_until_free())
            plan = await self._plan(thread.messages, self.run_request.conversation, facts)
        raise conversation_gate.busy(self.run_request.thread_id, conversation_gate.CHANGING)

    async def _publish_after_answers(
        self, thread: Thread, plan: history.Plan, facts: Collection[str], what: str
    ) -> None:
        """Publish the other new messages after the answers, although they were written before the answers were known.
        A history that replaces the one with the answers contains the answers itself."""
        if plan.kind == "replace":
            plan = await self._plan(thread.messages, self.run_request.conversation, facts)
        if plan.kind == "replace" or plan.messages:
            await self._publish_plan(thread, plan, what, expects=False)

    def _without_answers(self, results: Mapping[CallKey, Message]) -> list[Message]:
        """Returns the messages of the request without these results."""
        return answers.without(self.run_request.conversation, {one.tool_call_id for one in results.values()})

    async def _plan(
        self, stored: Sequence[ShownMessage], sent: Sequence[Message], facts: Collection[str]
    ) -> history.Plan:
        # In a thread: both may have megabytes.
        return await asyncio.to_thread(history.plan, stored, sent, facts)

    @property
    def _settling(self) -> CallSettling:
        return CallSettling(self.dependencies.database, self.run_request, self.frames, self._publish)

    async def _thread(self) -> Thread:
        return await self.dependencies.database.read(conversation_state.thread, self.run_request.thread_id)

    async def _stored(self) -> Mapping[str, FrameOutcome]:
        """Returns the outcomes of the frames of this request that are stored, by their names (`frame_id`)."""
        resumed = [of_entry(one) for one in self.run_request.resume or ()]
        ids = {frame_uuid(self.frames.frame_id(what)): what for what in (*resumed, *self._results, *ASKS)}
        found = await self.dependencies.database.read(
            client_requests.outcomes_of, self.run_request.thread_id, list(ids)
        )
        return {ids[frame_id]: one for frame_id, one in found.items()}

    @property
    def _results(self) -> Mapping[str, str | None]:
        """Returns the calls of the tool messages, by the names of their results (`frame_id`)."""
        tool_messages = [one for one in self.run_request.conversation if one.role == "tool"]
        return {of_message(one): one.tool_call_id for one in tool_messages}

    async def _asked_before(self, stored: Mapping[str, FrameOutcome]) -> AskedRun | None:
        """Returns the run of this request if it was requested before; `stored` has the frames of that request.
        Publishes the frames that the earlier request did not publish."""
        asks = {what: one for what, one in stored.items() if what in ASKS}
        answered = [
            one.version for what, one in stored.items() if what not in asks and one.reason != PLACE_REPLACED
        ]
        if answered:
            names = {call for what, call in self._results.items() if what in stored}
            is_said = any(one.reason != CONTEXT_CHANGED for one in asks.values())
            await self._publish_rest(min(answered), names, () if is_said else _unused_asks(stored))
            return AskedRun(min(answered), self.run_request.run_id, is_answer=True)
        versions = [one.version for one in asks.values() if one.outcome == "applied"]
        return AskedRun(min(versions), self.run_request.run_id) if versions else None

    async def _publish_rest(
        self, first: int, answered: Collection[str | None], unused: Sequence[str]
    ) -> None:
        """Publish the frames that an earlier request of this run did not publish. Its answers to the calls in
        `answered` are stored, the first one at the version `first`. Its messages are stored if `unused` has no
        question."""
        thread = await self._thread()
        conversation, facts = self.run_request.conversation, await self._settling.client_calls()
        results = {
            call: message
            for call, message in answers.of_calls(thread, conversation).items()
            if message.tool_call_id not in answered
        }
        if thread.waiting:
            await self._settling.answer(thread, results)
        if not unused:
            return
        before = await self.dependencies.database.read(shown_messages, self.run_request.thread_id, first - 1)
        rest = answers.without(conversation, {*answered, *(one.tool_call_id for one in results.values())})
        plan = await self._plan(before, rest, facts)
        # This client may have known an older history than the one before its answer: nothing is removed.
        if plan.kind == "append" and plan.messages:
            await self._publish_plan(replace(thread, messages=before), plan, unused[0], expects=False)

    async def _wait_until_free(self) -> Thread:
        """Returns the conversation once no answer is in progress. Raises `conversation-busy` on timeout, or at once if
        no question would be answered."""
        deadline = conversation_gate.deadline()
        thread_id = self.run_request.thread_id
        while True:
            thread = await self._thread()
            # Checked first: the open run of a parked conversation does not end.
            conversation_gate.check_answerable(
                thread_id, is_parked=thread.is_parked, is_recording=thread.is_recording
            )
            if not thread.goes_on:
                return thread
            look = deadline
            if self.while_waiting is not None:
                await self.while_waiting()
                look = min(deadline, asyncio.get_running_loop().time() + POLL_SECONDS)
            await conversation_gate.wait_for_change(self.dependencies, thread_id, thread.version, look)

    async def _with_tools(self, thread: Thread) -> Thread:
        """Give the conversation this client's functions. Returns its state afterwards.

        If the process dies after this, the functions are set without a question; the next request sets its own.
        """
        for _ in range(conversation_gate.TRIES):
            frame = self.frames.tools(thread)
            if frame is None:
                return thread
            await self._publish(frame, thread.version)
            thread = await self._wait_until_free()
        raise conversation_gate.busy(self.run_request.thread_id, "Other clients keep changing its functions.")

    async def _without_abandoned(
        self, thread: Thread, results: Mapping[CallKey, Message], facts: Collection[str]
    ) -> Thread:
        """Cancel the calls of clients that this request abandons: interrupted ones, and all of them if it replaces the
        history, since their place is removed. Returns the state of the conversation afterwards."""
        is_replaced = False
        if thread.waiting:
            plan = await self._plan(thread.messages, self._without_answers(results), facts)
            is_replaced = plan.kind == "replace"
        is_changed = await self._settling.leave(thread, results, is_replaced=is_replaced)
        return await self._thread() if is_changed else thread

    async def _served(self) -> Sequence[dict[str, Any]]:
        """Returns the functions of live services, which a new conversation gets."""
        if not self.dependencies.settings.gateway_ag_ui_tools:
            return ()
        return list((await self.dependencies.database.read(offers.tools_on_offer)).values())

    async def _publish_plan(
        self, thread: Thread, plan: history.Plan, what: str, *, expects: bool = True
    ) -> AskedRun | None:
        """Publish the plan. Returns None if the conversation has changed since."""
        if thread.version == 0:
            frame = self.frames.opening(thread, plan, what, await self._served())
        else:
            frame = self.frames.question(thread, plan, what)
        try:
            stored = await self._publish(frame, thread.version if expects else None)
        except ProblemError as problem:
            if problem.word != "key-reused":
                raise
            # The same request was sent twice at the same time: the other one published this frame first.
            others = await self._stored()
            if (before := await self._asked_before(others)) is not None:
                return before
            if what not in others or others[what].reason != CONTEXT_CHANGED:
                raise
            return None
        if stored is None or stored.outcome != "applied" or stored.version is None:
            return None
        return AskedRun(stored.version, self.run_request.run_id)

    async def _publish(self, frame: AnyFrame, expected: int | None) -> PublishedFrame | None:
        """Publish a frame. Returns None if the conversation has changed since the version `expected`."""
        try:
            stored = await publishing.publish(
                self.dependencies, self.request, self.run_request.thread_id, frame, expected
            )
        except ContextChangedError:
            return None
        if stored.outcome == "rejected" and stored.reason == "id_reused":
            raise ProblemError(
                "key-reused", f"The run {self.run_request.run_id!r} was requested before with other content."
            )
        return stored


def _unused_asks(stored: Mapping[str, FrameOutcome]) -> Sequence[str]:
    return [what for what in ASKS if what not in stored]
