"""Function calls of workers' answers: functions of the application and of function services.

A function of the application starts only after its start frame is stored and applied. So the log has each call that may
have happened, even if this process dies. If a function service has the function too, the first start frame counts and
the function runs once. The application's start frame names the call that it starts: otherwise a call that a service has
already ended would start again as a new call. Pipecat gets the results of function services as its own frames.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from typing import Any

from frameledger.frames import (
    AnyFrame,
    FunctionCallCancelFrame,
    FunctionCallFromLLM,
    FunctionCallInProgressFrame,
    FunctionCallResultFrame,
    InterruptionFrame,
)
from frameledger_services.client import StoredFrame
from frameledger_services.extras import needed
from frameledger_services.pipecat.errors import AskingError
from frameledger_services.pipecat.inference_requests import InferenceRequests
from frameledger_services.pipecat.open_calls import OpenCall, OpenCalls
from frameledger_services.pipecat.values import to_json

with needed("pipecat"):
    from pipecat.frames import frames as theirs

NOT_RECORDED = "The call could not be recorded, so the function was not called."
NOT_SERVED = "No service offers this function now. It was not called."

_SERVED = ("call_started", "target_over")
"""Reasons of ignored start frames which mean that a service runs, or has run, the call."""

logger = logging.getLogger("frameledger.pipecat")


class ServiceCalls:
    """The function calls of one LLM service's answers."""

    def __init__(self, service: Any, requests: InferenceRequests, begin_secs: float) -> None:
        self._service = service
        self._requests = requests
        self._begin_secs = begin_secs
        self._calls = OpenCalls()
        self._tasks: set[asyncio.Task[None]] = set()
        self.take = self._calls.take

    async def end(self) -> None:
        """Stop waiting for open calls."""
        for task in tuple(self._tasks):
            await self._service.cancel_task(task)

    def is_recorded(self, frame: Any) -> bool:
        """Returns whether the log already has the content of this Pipecat frame."""
        if isinstance(frame, theirs.FunctionCallsStartedFrame):
            return all(one.tool_call_id in self._calls for one in frame.function_calls)
        if isinstance(frame, theirs.FunctionCallInProgressFrame):
            return frame.tool_call_id in self._calls
        if isinstance(frame, theirs.FunctionCallResultFrame | theirs.FunctionCallCancelFrame):
            call = self._calls.get(frame.tool_call_id)
            return call is not None and call.is_served is True
        return False

    async def before_broadcast(self, kind: Any, fields: dict[str, Any]) -> None:
        """Called before a frame about a call is broadcast. With `group_parallel_tools`, all calls of an answer are one
        group, whichever process runs them: a result, or the cancellation of a call that timed out, waits until Pipecat
        knows the other calls, and requests no answer if these wait for it. Without a group, each requests one."""
        call = self._calls.get(fields["tool_call_id"])
        if call is None:
            return
        if kind is theirs.FunctionCallInProgressFrame:
            fields["group_id"] = call.group_id if self._is_grouped else None
            call.started_in_pipecat.set()
            return
        properties = fields.get("properties")
        call.is_answered |= properties is None or properties.is_final
        # A call that timed out requests an answer, too.
        requests_none = kind is theirs.FunctionCallCancelFrame and not fields.get("run_llm")
        if requests_none or not self._is_grouped:
            return
        is_chosen = kind is theirs.FunctionCallResultFrame and fields.get("run_llm") is not None
        for other in self._calls.others_open(fields["tool_call_id"]):
            if not call.is_sequential:
                await other.started_in_pipecat.wait()
            elif not is_chosen:
                fields["run_llm"] = False

    @property
    def _is_grouped(self) -> bool:
        return bool(getattr(self._service, "_group_parallel_tools", True))

    async def begin(self, calls: Sequence[FunctionCallFromLLM], group_id: str | None, context: Any) -> None:
        """Start the calls of an answer, without waiting for them."""
        one_by_one = not getattr(self._service, "_run_in_parallel", True)
        self._calls.begin([one.tool_call_id for one in calls], group_id, one_by_one=one_by_one)
        mine = [one for one in calls if self._service.has_function(one.function_name)]
        others = [one for one in calls if not self._service.has_function(one.function_name)]
        if others:
            announced = [_theirs(one, context) for one in others]
            await self._service.broadcast_frame(theirs.FunctionCallsStartedFrame, function_calls=announced)
            for llm_call in others:
                self._calls[llm_call.tool_call_id].is_served = True
                self._spawn(self._serve(llm_call), llm_call)
        if mine and self._calls[mine[0].tool_call_id].is_sequential:
            for llm_call in mine:
                self._spawn(self._run([llm_call], context), llm_call)
        elif mine:
            self._spawn(self._run(mine, context), mine[0])

    def _spawn(self, work: Any, call: FunctionCallFromLLM) -> None:
        task = self._service.create_task(work, f"{self._service}::{call.function_name}:{call.tool_call_id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, calls: Sequence[FunctionCallFromLLM], context: Any) -> None:
        """Run the functions of the application whose start frames are applied."""
        await self._calls.until_turn_of(calls[0].tool_call_id)
        interruptions = self._requests.interruptions
        starts = await asyncio.gather(*(self._start(one) for one in calls))
        run = []
        for llm_call, start in zip(calls, starts, strict=True):
            call = self._calls[llm_call.tool_call_id]
            counts = start is not None and start.outcome == "applied"
            if start is None:
                self._spawn(self._settle(llm_call, NOT_RECORDED), llm_call)
            elif counts and self._requests.interruptions != interruptions and self._is_cut(llm_call):
                self._requests.publish({"type": "FunctionCallCancelFrame", **_named(llm_call)})
                call.started_in_pipecat.set()
            elif counts:
                run.append(_theirs(llm_call, context))
            elif start.reason in _SERVED:
                call.is_served = True
                self._spawn(self._serve(llm_call), llm_call)
            elif start.reason == "call_forgotten":
                self._calls.drop(llm_call.tool_call_id)
            else:
                self._spawn(self._settle(llm_call, NOT_RECORDED, start.reason), llm_call)
        if run:
            await self._service.run_function_calls(run)

    async def _serve(self, llm_call: FunctionCallFromLLM) -> None:
        """Report the progress of a call that a service runs to Pipecat."""
        call = self._calls[llm_call.tool_call_id]
        await self._calls.until_turn_of(llm_call.tool_call_id)
        try:
            async with asyncio.timeout(self._begin_secs):
                frame = await call.frames.get()
        except TimeoutError:
            start = await self._start(llm_call)
            if start is None or start.outcome == "applied":
                await self._settle(llm_call, NOT_SERVED)
                return
            if start.reason not in (*_SERVED, "call_forgotten"):
                await self._settle(llm_call, NOT_RECORDED, start.reason)
                return
            frame = InterruptionFrame() if start.reason == "call_forgotten" else await call.frames.get()
        while not await self._broadcast(llm_call, call, frame):
            frame = await call.frames.get()
        self._calls.drop(llm_call.tool_call_id)

    async def _broadcast(self, llm_call: FunctionCallFromLLM, call: OpenCall, frame: AnyFrame) -> bool:
        """Pass a frame on to Pipecat. Returns whether the call has ended."""
        match frame:
            case FunctionCallInProgressFrame() if not call.started_in_pipecat.is_set():
                await self._broadcast_start(llm_call, frame.cancel_on_interruption)
            case FunctionCallResultFrame():
                properties = frame.properties
                is_final = properties is None or properties.is_final
                run_llm = None if properties is None else properties.run_llm
                await self._service.broadcast_frame(
                    theirs.FunctionCallResultFrame,
                    **_named(llm_call),
                    arguments=_arguments(llm_call),
                    result=to_json(frame.result),
                    run_llm=frame.run_llm,
                    properties=theirs.FunctionCallResultProperties(run_llm=run_llm, is_final=is_final),
                )
                return is_final
            case FunctionCallCancelFrame() | InterruptionFrame():
                await self._service.broadcast_frame(theirs.FunctionCallCancelFrame, **_named(llm_call))
                return True
        return False

    async def _broadcast_start(self, llm_call: FunctionCallFromLLM, cancel_on_interruption: bool) -> None:
        await self._service.broadcast_frame(
            theirs.FunctionCallInProgressFrame,
            **_named(llm_call),
            arguments=_arguments(llm_call),
            cancel_on_interruption=cancel_on_interruption,
            group_id=None,
        )

    async def _settle(self, llm_call: FunctionCallFromLLM, result: str, reason: str | None = None) -> None:
        """Settle a call that does not run, in Pipecat and on the log. `reason` is why its start frame was ignored."""
        if reason is not None:
            logger.warning(
                "%s: the start of %s was ignored: %s", self._service, llm_call.function_name, reason
            )
        self._calls[llm_call.tool_call_id].is_served = False
        await self._broadcast_start(llm_call, True)
        await self._service.broadcast_frame(
            theirs.FunctionCallResultFrame,
            **_named(llm_call),
            arguments=_arguments(llm_call),
            result=result,
        )
        self._calls.drop(llm_call.tool_call_id)

    async def _start(self, llm_call: FunctionCallFromLLM) -> StoredFrame | None:
        """Publish the start frame of a call of the application. Returns the stored frame, or None on timeout: the frame
        may still be applied later, but the function must not be called."""
        fields = {
            "type": "FunctionCallInProgressFrame",
            **_named(llm_call),
            "arguments": to_json(llm_call.arguments),
            "cancel_on_interruption": self._is_cut(llm_call),
        }
        if (version := self._calls[llm_call.tool_call_id].announced_version) is not None:
            fields["opened_version"] = version
        try:
            id_ = self._requests.publish(fields)
        except AskingError:
            return None
        return await self._calls.outcome_of(id_, self._begin_secs)

    def _is_cut(self, llm_call: FunctionCallFromLLM) -> bool:
        """Returns whether an interruption cancels this call."""
        functions = self._service._functions
        item = functions.get(llm_call.function_name) or functions.get(None)
        return item is None or bool(item.cancel_on_interruption)


def _named(llm_call: FunctionCallFromLLM) -> dict[str, Any]:
    return {"function_name": llm_call.function_name, "tool_call_id": llm_call.tool_call_id}


def _arguments(llm_call: FunctionCallFromLLM) -> Any:
    """Returns the arguments as an object, as Pipecat has them."""
    if not isinstance(llm_call.arguments, str):
        return to_json(llm_call.arguments)
    try:
        return json.loads(llm_call.arguments)
    except ValueError:
        return llm_call.arguments


def _theirs(llm_call: FunctionCallFromLLM, context: Any) -> Any:
    return theirs.FunctionCallFromLLM(**_named(llm_call), arguments=_arguments(llm_call), context=context)
