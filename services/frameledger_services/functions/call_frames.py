"""One attempt at a call, and the frames that a worker publishes about it.

The id of a frame is derived from the call, the attempt, the token of its claim and the kind of frame: a frame that is
published again is a duplicate, and no other worker's frame has the same id. A frame with `own` names the claim, and
counts only if the start of that claim does. A frame that settles the call whichever worker started it names none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID, uuid5

from frameledger import derived
from frameledger.frames import (
    ErrorFrame,
    FunctionCallCancelFrame,
    FunctionCallFromLLM,
    FunctionCallInProgressFrame,
    FunctionCallResultFrame,
    FunctionCallResultProperties,
)
from frameledger.frames.calls import Waiting
from frameledger.ids import ContextId, ToolCallId, Version
from frameledger_services import call_words
from frameledger_services.functions.options import Options
from frameledger_services.store.call_snapshots import CallSnapshot
from frameledger_services.store.tool_calls import CallKey

FRAMES = UUID("5f0d6c1e-7a34-5f0b-9d37-3c1f6a7e2b94")
"""Never changes: with another namespace a repeated frame would not be a duplicate."""

FUNCTION_FAILED = "function_failed"
"""The code of the `ErrorFrame` that has the details of a failed call."""

SettledAs = Literal["failed", "ambiguous"]


@dataclass(frozen=True, slots=True)
class CallAttempt:
    """A call, as one worker runs it under one claim."""

    scope: str
    """The id of its effect, which is the same for every attempt and for no other call."""

    context_id: ContextId
    requested_version: Version
    ordinal: int
    tool_call_id: str
    function_name: str
    arguments: Any
    """As they were announced."""

    group_id: str | None
    attempt: int | None
    """None for a call without a claim: see `local_calls`."""

    worker_id: str
    claim: str | None = None
    """The token of its claim; None without one."""

    builtin: bool = False
    dispatched_by: UUID | None = None
    """The frame that dispatched it, or announced it if none did: the cause of its start."""

    started_by: UUID | None = None
    """The start by an earlier attempt. None if there was none when this one was claimed."""

    deaths: int = 0
    """Number of earlier attempts whose worker died."""

    @property
    def key(self) -> CallKey:
        return (self.requested_version, self.ordinal)

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt, and for no other call."""
        return derived.idempotency_key(
            self.context_id, self.requested_version, self.ordinal, ToolCallId(self.tool_call_id)
        )

    @property
    def from_llm(self) -> FunctionCallFromLLM:
        """The call as the model requested it."""
        return FunctionCallFromLLM(
            function_name=self.function_name,
            tool_call_id=self.tool_call_id,
            arguments=self.arguments,
            builtin=self.builtin,
        )

    def names(self) -> Mapping[str, Any]:
        """Returns the fields of a log line that identify the call."""
        return {
            "context_id": self.context_id,
            "tool_call_id": self.tool_call_id,
            "function_name": self.function_name,
            "attempt": self.attempt,
        }

    def frame_id(self, kind: str) -> str:
        claim = "" if self.claim is None else f"{self.claim}:"
        return str(uuid5(FRAMES, f"{self.scope}:{self.attempt or 0}:{claim}{kind}"))

    @property
    def in_progress_id(self) -> str:
        """The id of its in-progress frame, which is the cause of later frames about it."""
        return self.frame_id("in progress")

    def is_started_in(self, current: CallSnapshot) -> bool:
        """Returns whether the latest start of the call is this worker's, under this claim."""
        return (current.worker, current.attempt, current.claim) == (
            self.worker_id,
            self.attempt or 0,
            self.claim,
        )

    def may_run(self, current: CallSnapshot) -> bool:
        """Returns whether the log has decided that this worker runs the call: its start was applied, and the call is
        open, not interrupted, and in progress by this worker, this attempt and this claim. `current` is the snapshot of
        the in-progress frame.

        The id of that frame is derived from the claim, so no other start is read, whatever the database had granted
        before it lost its latest commits. The first start on the log is applied, so of two claims with the same attempt
        one may run.
        """
        return (
            current.outcome == "applied"
            and current.status == "running"
            and current.interrupted_version is None
            and self.is_started_in(current)
        )

    def in_progress(
        self, options: Options, timeout_secs: float, *, waiting: Waiting | None = None
    ) -> FunctionCallInProgressFrame:
        """Returns the frame that starts the call with these options; with `waiting`, the call waits for a person from
        now on."""
        return FunctionCallInProgressFrame(
            id=self.in_progress_id if waiting is None else self.frame_id("waiting"),
            function_name=self.function_name,
            tool_call_id=self.tool_call_id,
            arguments=self.arguments,
            cancel_on_interruption=options.cancel_on_interruption,
            group_id=self.group_id,
            worker=self.worker_id,
            call_attempt=self.attempt,
            claim=self.claim,
            safe_to_retry=options.safe_to_retry,
            timeout_secs=timeout_secs,
            waiting=waiting,
            # Without an attempt, the frame would also start a call that was not announced.
            opened_version=self.requested_version if self.attempt is None else None,
        )

    def result(
        self, result: Any, properties: FunctionCallResultProperties | None = None, run_llm: bool | None = None
    ) -> FunctionCallResultFrame:
        """The final result."""
        return self._result("result", result, properties=properties, run_llm=run_llm)

    def intermediate(
        self, number: int, result: Any, properties: FunctionCallResultProperties
    ) -> FunctionCallResultFrame:
        """Returns an intermediate result. They are numbered from 1."""
        return self._result(f"result {number}", result, properties=properties)

    def settled(
        self, settled_as: SettledAs, message: str, *, run_llm: bool | None = None, own: bool = True
    ) -> FunctionCallResultFrame:
        """Returns the frame that ends the call without a result of its function."""
        return self._result(settled_as, message, own=own, settled_as=settled_as, run_llm=run_llm)

    def cancel(self, *, run_llm: bool, own: bool = True) -> FunctionCallCancelFrame:
        """Returns the frame that cancels the call, which has no result."""
        return FunctionCallCancelFrame(
            id=self.frame_id("cancel"),
            function_name=call_words.shown(self.function_name),
            tool_call_id=self.tool_call_id,
            run_llm=run_llm,
            call_attempt=self._settling_attempt,
            claim=self.claim if own else None,
            opened_version=self.requested_version,
        )

    def error(self, details: str, *, later: bool = False) -> ErrorFrame:
        """Returns the details of a failure, for people. `later`: the call had already been settled by something
        else."""
        return ErrorFrame(
            id=self.frame_id("error later" if later else "error"),
            fatal=False,
            code=FUNCTION_FAILED,
            tool_call_id=self.tool_call_id,
            message=f"The call {self.tool_call_id} of {call_words.shown(self.function_name)} failed: {details}",
        )

    @property
    def _settling_attempt(self) -> int:
        """The attempt tells the fold that the call is settled by a worker and not by a client, so that after an
        interruption no run is requested. The start of a call without a claim names no attempt, because such a call was
        not dispatched."""
        return self.attempt or 1

    def _result(self, kind: str, result: Any, *, own: bool = True, **more: Any) -> FunctionCallResultFrame:
        return FunctionCallResultFrame(
            id=self.frame_id(kind),
            function_name=call_words.shown(self.function_name),
            tool_call_id=self.tool_call_id,
            result=result,
            call_attempt=self._settling_attempt,
            claim=self.claim if own else None,
            # The id may have been used again meanwhile, by a call whose attempts are also counted from 1.
            opened_version=self.requested_version,
            **more,
        )
