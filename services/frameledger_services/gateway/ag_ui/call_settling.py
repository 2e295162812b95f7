"""Settles calls that wait: with the answers in a request, or by cancelling calls that it abandons."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from frameledger.frames import AnyFrame
from frameledger_services import logs
from frameledger_services.client import PublishedFrame
from frameledger_services.gateway import request_frames
from frameledger_services.gateway.ag_ui import answers, messages
from frameledger_services.gateway.ag_ui.answers import CallKey
from frameledger_services.gateway.ag_ui.interrupt_ids import call_of_interrupt
from frameledger_services.gateway.ag_ui.request_frames import RequestFrames
from frameledger_services.gateway.ag_ui.run_input import Message, RunInput
from frameledger_services.store import client_calls, client_requests
from frameledger_services.store.client_calls import ClientCall
from frameledger_services.store.client_requests import AskedRun
from frameledger_services.store.connections import Connections
from frameledger_services.store.conversation_state import Thread

PLACE_REPLACED = "place_replaced"
"""The reason for which an answer is not applied: the history no longer contains its call."""

_log = logs.get_logger("gateway")


@dataclass(frozen=True, slots=True)
class CallSettling:
    """The calls of one request."""

    database: Connections
    run_request: RunInput
    frames: RequestFrames
    publish: Callable[[AnyFrame, None], Awaitable[PublishedFrame | None]]

    async def client_calls(self) -> Mapping[str, ClientCall]:
        """Returns the calls of clients' functions for which this request has results, by their ids in the protocol."""
        named = {
            one.tool_call_id: messages.call_of_name(one.tool_call_id)
            for one in self.run_request.conversation
            if one.role == "tool" and one.tool_call_id is not None
        }
        calls_by_id = await self.database.read(
            client_calls.of_clients, self.run_request.thread_id, [*named, *named.values()]
        )
        calls = {name: calls_by_id.get(name) or calls_by_id.get(call) for name, call in named.items()}
        return {name: call for name, call in calls.items() if call is not None}

    async def settled_by_another(self, thread: Thread, facts: Mapping[str, ClientCall]) -> AskedRun | None:
        """Returns the run that another client's answer started, if that client settled the call of the result that ends
        this request first. Returns None if none did."""
        call = answers.last_answered(self.run_request.conversation, facts)
        if call is None or call.settled_version is None:
            return None
        ids = await self.database.read(
            client_requests.message_ids_of, self.run_request.thread_id, call.settled_version
        )
        given_as = ids[0] if len(ids) == 1 else None
        last = self.run_request.conversation[-1]
        version = answers.settled_by_another_client(thread, last, call, given_as)
        return None if version is None else AskedRun(version, self.run_request.run_id, is_answer=True)

    async def leave(self, thread: Thread, results: Mapping[CallKey, Message], *, is_replaced: bool) -> bool:
        """Cancel the calls of clients that this request abandons. Returns whether there were any. With `is_replaced` it
        replaces the history."""
        left = request_frames.abandoned(
            thread.waiting,
            lambda call: (call.tool_call_id, call.requested_version) in results,
            is_replaced=is_replaced,
        )
        for call in left:
            await self.publish(self.frames.cancellation(call), None)
        return bool(left)

    async def answer(self, thread: Thread, results: Mapping[CallKey, Message]) -> AskedRun | None:
        """Publish the answers to waiting calls: those of `resume`, and tool messages. Returns the run that continues
        the conversation, or None if no answer counts. If another client answered first, its answer started that run."""
        waiting = {(call.tool_call_id, call.requested_version): call for call in thread.waiting}
        frames: list[AnyFrame] = []
        for entry in self.run_request.resume or ():
            named = call_of_interrupt(entry.interrupt_id)
            call = None if named is None else waiting.get(named)
            if named is None or call is None:
                # Answered earlier, or by another client, or not a call that waits: the run continues without it.
                _log.warning("gateway.unknown_interrupt", context_id=self.run_request.thread_id)
                continue
            frames.append(self.frames.resumed(entry, call))
            del waiting[named]
        for key, message in results.items():
            if (call := waiting.get(key)) is not None:
                frames.append(self.frames.result(message, call))
        stored = [await self.publish(frame, None) for frame in frames]
        counting = [one.version for one in stored if one is not None and one.outcome == "applied"]
        if counting and counting[0] is not None:
            return AskedRun(counting[0], self.run_request.run_id, is_answer=True)
        if any(one is not None and one.reason != PLACE_REPLACED for one in stored):
            return AskedRun(thread.version, self.run_request.run_id)
        return None
