"""Stamps the frames of one attempt with run, attempt and claim, and with ids that are derived from these."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid5

from frameledger.frames import (
    AnyFrame,
    FunctionCallsStartedFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    TextFrame,
)
from frameledger_services.inference.call_ids import with_unique_ids

FRAMES = UUID("4b0e7d52-3f0d-5a86-9a3d-0c2e5f8b7a61")
"""The namespace of our frames' ids. It never changes, because a frame that is published again must keep its id."""

GROUPS = UUID("a3c2d6f4-7e1b-5b1f-8a54-2d9f0e6c1b78")


@dataclass(slots=True)
class AttemptStamp:
    """The stamp of one attempt of one run. The claim assigned its number, so no other worker publishes under it, unless
    a database that lost its latest commits assigned it twice; then the claim's token distinguishes the two.

    The id of a frame is derived from the attempt, and from the frame's kind if the attempt has only one of that kind,
    otherwise from the number of frames before it. So a frame that is published again is a repetition.
    """

    run_id: str
    number: int
    claim: str
    skip_tts: bool | None = None
    _named: set[str] = field(default_factory=set, repr=False)
    _called: set[str] = field(default_factory=set, repr=False)
    """The ids of the calls that were announced."""

    def stamped(self, frame: AnyFrame) -> AnyFrame:
        """Returns the frame as it is published. Call it once per frame, in order."""
        marks: dict[str, Any] = {
            "id": self._id(frame.type),
            "produced_at": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "run_id": self.run_id,
            "attempt": self.number,
            "claim": self.claim,
        }
        # None leaves the provider's own value, if it set one.
        if self.skip_tts is not None and isinstance(
            frame, LLMFullResponseStartFrame | TextFrame | LLMFullResponseEndFrame
        ):
            marks["skip_tts"] = self.skip_tts
        return frame.model_copy(update=marks)

    def announcement(
        self,
        announced: FunctionCallsStartedFrame,
        *,
        builtin: frozenset[str],
        run_in_parallel: bool,
        group_parallel_tools: bool,
        accepted_id: Callable[[str], str] = str,
    ) -> FunctionCallsStartedFrame:
        """Returns the announcement of these calls as one group, each with a unique id and marked if it is built in.
        Call it once per announcement, in order, since a provider may make several in one answer. `accepted_id` returns
        an id in a form that the provider accepts."""
        calls = [
            call.model_copy(update={"builtin": True}) if call.function_name in builtin else call
            for call in announced.function_calls
        ]
        unique = with_unique_ids(calls, f"{self.run_id}:{self._name}", self._called, accepted_id)
        self._called.update(call.tool_call_id for call in unique)
        return announced.model_copy(
            update={
                "function_calls": unique,
                "group_id": str(uuid5(GROUPS, f"{self.run_id}:{self._name}"))
                if group_parallel_tools
                else None,
                "run_in_parallel": run_in_parallel,
                "group_parallel_tools": group_parallel_tools,
            }
        )

    def _id(self, frame_type: str) -> str:
        kind = _ONCE.get(frame_type)
        if kind is None or kind in self._named:
            kind = str(len(self._named))
        self._named.add(kind)
        return str(uuid5(FRAMES, f"{self.run_id}:{self._name}:{kind}"))

    @property
    def _name(self) -> str:
        """Returns what distinguishes this attempt from the others of its run."""
        return f"{self.number}:{self.claim}"


_ONCE = {
    "LLMFullResponseStartFrame": "start",
    "FunctionCallsStartedFrame": "calls",
    "LLMFullResponseEndFrame": "end",
}
