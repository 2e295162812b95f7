"""The frames that a worker publishes of one call. Each has an id that follows from the call, its attempt, the token of
its claim and what it says, so that publishing one again says nothing twice, and no other worker says the same.

What the worker says as the one that started the call (`own`) names its claim, and counts only if its start does. What
settles a call whoever started it names none.
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
from frameledger_services.functions.options import Options

FRAMES = UUID("5f0d6c1e-7a34-5f0b-9d37-3c1f6a7e2b94")
"""A constant of the product: with another one an attempt that goes on elsewhere would say things twice."""

FUNCTION_FAILED = "function_failed"
"""The code of the `ErrorFrame` that has the details of a failed call."""

SettledAs = Literal["failed", "ambiguous"]


@dataclass(frozen=True, slots=True)
class Call:
    """One call in the hands of one worker."""

    scope: str
    """What distinguishes it from all others, whoever works on it: the id of its effect."""

    context_id: ContextId
    requested_version: Version
    ordinal: int
    tool_call_id: str
    function_name: str
    arguments: Any
    """As they were announced."""

    group_id: str | None
    attempt: int | None
    """Null for a call that nobody claimed, since its model is run by somebody else."""

    worker_id: str
    claim: str | None = None
    """The token of its claim; null if it has none."""

    builtin: bool = False

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt, and for no other call."""
        return derived.idempotency_key(
            self.context_id, self.requested_version, self.ordinal, ToolCallId(self.tool_call_id)
        )

    @property
    def from_llm(self) -> FunctionCallFromLLM:
        """The call as the model asked for it."""
        return FunctionCallFromLLM(
            function_name=self.function_name,
            tool_call_id=self.tool_call_id,
            arguments=self.arguments,
            builtin=self.builtin,
        )

    def names(self) -> Mapping[str, Any]:
        """Which call it is, for log lines."""
        return {
            "context_id": self.context_id,
            "tool_call_id": self.tool_call_id,
            "function_name": self.function_name,
            "attempt": self.attempt,
        }

    def frame_id(self, says: str) -> str:
        under = "" if self.claim is None else f"{self.claim}:"
        return str(uuid5(FRAMES, f"{self.scope}:{self.attempt or 0}:{under}{says}"))

    def in_progress(
        self, options: Options, timeout_secs: float, *, waiting: Waiting | None = None
    ) -> FunctionCallInProgressFrame:
        """It has started on these terms; with `waiting`, it waits for a person from now on."""
        return FunctionCallInProgressFrame(
            id=self.frame_id("in progress" if waiting is None else "waiting"),
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
        )

    def result(
        self, result: Any, properties: FunctionCallResultProperties | None = None, run_llm: bool | None = None
    ) -> FunctionCallResultFrame:
        """Its result, final."""
        return self._result("result", result, properties=properties, run_llm=run_llm)

    def intermediate(
        self, number: int, result: Any, properties: FunctionCallResultProperties
    ) -> FunctionCallResultFrame:
        """The so-manieth result in between, from 1."""
        return self._result(f"result {number}", result, properties=properties)

    def settled(
        self, settled_as: SettledAs, message: str, *, run_llm: bool | None = None, own: bool = True
    ) -> FunctionCallResultFrame:
        """It ended without a result of its own."""
        return self._result(settled_as, message, own=own, settled_as=settled_as, run_llm=run_llm)

    def cancel(self, *, run_llm: bool, own: bool = True) -> FunctionCallCancelFrame:
        """It was stopped, and has no result."""
        return FunctionCallCancelFrame(
            id=self.frame_id("cancel"),
            function_name=self.function_name,
            tool_call_id=self.tool_call_id,
            run_llm=run_llm,
            call_attempt=self._settling_attempt,
            claim=self.claim if own else None,
            opened_version=self.requested_version,
        )

    def error(self, details: str, *, later: bool = False) -> ErrorFrame:
        """What went wrong inside, for people; `later`, when the call had ended without that."""
        return ErrorFrame(
            id=self.frame_id("error later" if later else "error"),
            fatal=False,
            code=FUNCTION_FAILED,
            message=f"The call {self.tool_call_id} of {self.function_name} failed: {details}",
        )

    @property
    def _settling_attempt(self) -> int:
        """By which the fold tells a worker's word from a client's: after an interruption it asks for nothing. The start
        of a call that nobody claimed has none, since it starts what was not dispatched."""
        return self.attempt or 1

    def _result(self, says: str, result: Any, *, own: bool = True, **more: Any) -> FunctionCallResultFrame:
        return FunctionCallResultFrame(
            id=self.frame_id(says),
            function_name=self.function_name,
            tool_call_id=self.tool_call_id,
            result=result,
            call_attempt=self._settling_attempt,
            claim=self.claim if own else None,
            # The id may have been used again meanwhile, by a call whose attempts are counted from 1 too.
            opened_version=self.requested_version,
            **more,
        )
