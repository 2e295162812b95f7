"""Settles calls of a client's own functions: with the results in a request, or by cancelling calls that it abandons."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request

from frameledger.frames import AnyFrame
from frameledger_services.client import PublishedFrame
from frameledger_services.gateway import publishing, request_frames
from frameledger_services.gateway.dependencies import Dependencies
from frameledger_services.gateway.openai import client_answers, conversation
from frameledger_services.gateway.openai.client_answers import CallsById
from frameledger_services.gateway.openai.history import Plan
from frameledger_services.gateway.openai.question import AskedQuestion
from frameledger_services.gateway.openai.request_frames import RequestFrames
from frameledger_services.gateway.problems import ProblemError
from frameledger_services.store import client_calls
from frameledger_services.store.client_calls import ClientCall
from frameledger_services.store.conversation_state import Readiness


@dataclass(frozen=True, slots=True)
class CallSettling:
    """The calls of one request."""

    dependencies: Dependencies
    request: Request
    frames: RequestFrames

    async def leave(self, plan: Plan, answered: Collection[str]) -> bool:
        """Cancel the calls of clients that this request abandons: interrupted ones, and all of them if it replaces the
        history, since their place is removed. Returns whether there were any."""
        waiting = await self.dependencies.database.read(client_calls.waiting, self.frames.context_id)
        left = request_frames.abandoned(
            waiting, lambda call: call.tool_call_id in answered, is_replaced=plan.kind == "replace"
        )
        for call in left:
            await self._publish(self.frames.cancellation(call))
        return bool(left)

    async def answer(
        self, results: Sequence[tuple[ClientCall, Any]], version: int, *, has_more: bool
    ) -> AskedQuestion | None:
        """Publish the results of calls. With `has_more` the request has other new messages too, and these ask for the
        answer: returns None, and the caller publishes them next. Raises `answer-refused` if the results exceed a limit
        of the conversation."""
        stored = [
            await self._publish(
                self.frames.result(
                    call, result, is_question=number == len(results) and not has_more, has_more=has_more
                )
            )
            for number, (call, result) in enumerate(results, 1)
        ]
        if any(one.reason == "context_full" for one in stored):
            raise self._full()
        if has_more or all(one.reason == "place_replaced" for one in stored):
            # Calls that are no longer in the history are messages like any other.
            return None
        since = min(call.requested_version for call, _ in results)
        counting = [one.version for one in stored if one.outcome == "applied" and one.version is not None]
        # If none counts, another client has answered them, and the model continued after the version that was read.
        return AskedQuestion(
            self.frames.context_id, min(counting, default=version), since, is_own=bool(counting)
        )

    async def answered_elsewhere(
        self, readiness: Readiness, held: Sequence[Mapping[str, Any]], plan: Plan, calls: CallsById
    ) -> AskedQuestion | None:
        """Returns the question whose answer a request receives that ends with a result and has nothing new: other calls
        of the answer are still open, or the model has continued, or another client settled the call first. Returns None
        if the request asks for another answer. `held` has the stored messages."""
        last_result = client_answers.last(self.frames.chat_request.messages, calls)
        if last_result is None:
            return None
        context_id, (call, value) = self.frames.context_id, last_result
        if plan.kind == "append" and not plan.messages:
            left = await self.dependencies.database.read(
                client_calls.left_since, context_id, call.requested_version
            )
            others = await self.dependencies.database.read(
                client_calls.others_waiting_since, context_id, call.requested_version
            )
            if others or any(not one.interrupted for one in left):
                # Either some calls of the answer are still open, and the model continues when all have results; or the
                # model has continued and made other calls.
                return AskedQuestion(context_id, readiness.version, call.requested_version, is_own=False)
        if plan.kind == "replace" and call.settled_version is not None and value != call.result:
            behind = _behind_result(held, call.tool_call_id)
            if behind is not None and not any(one.get("role") == "user" for one in behind):
                # Another client settled the call first: this one receives the answer to that result.
                return AskedQuestion(context_id, call.settled_version, call.requested_version, is_own=False)
        return None

    def _full(self) -> ProblemError:
        return ProblemError(
            "answer-refused",
            "The conversation has no room for this result (its limits `context_messages` and `context_bytes`): the "
            "call is settled, but the model does not see its result. A shorter history makes room.",
            headers=conversation.in_header(self.frames.context_id),
            code="context_full",
        )

    async def _publish(self, frame: AnyFrame) -> PublishedFrame:
        """Publish a frame that settles a call. It is ignored if the call is settled already."""
        return await publishing.publish(self.dependencies, self.request, self.frames.context_id, frame, None)


def _behind_result(
    held: Sequence[Mapping[str, Any]], tool_call_id: str
) -> Sequence[Mapping[str, Any]] | None:
    """Returns the messages after the newest result of a call, or None if it has no result."""
    for place in range(len(held) - 1, -1, -1):
        if held[place].get("role") == "tool" and held[place].get("tool_call_id") == tool_call_id:
            return held[place + 1 :]
    return None
