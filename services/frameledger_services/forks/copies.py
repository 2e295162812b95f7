"""Copies of recorded frames for another conversation, without repeating their effects.

The conversation of the copies is a *recording* from its first frame on (rule RA5.recording): the fold emits no effects
for it, so no model and no function is called. A context or mirror frame among the copies would end that, so each gets
`react: false`. The copies contain what reached the original context:

- Only applied frames and frames of unknown types are copied. An ignored frame could be applied in the copy, where the
  run or call that refused it is not open.
- Of a run only the valid attempt is copied: the text of earlier attempts was retracted, and copies cannot retract. A
  message of theirs that a client rewrote was not retracted, and is copied as a message.
- Runs, attempts, claims and versions are removed, because they refer to the original. An answer becomes a response that
  names no run, and a call becomes one that another program runs; a recording folds both to the same messages.
- The fold starts a call of a client's function without a frame (RA5.client), except in a recording. So the copy of the
  frame that began such calls is followed by a start frame for each.
- An erasure is not copied.
- A rewrite names a position, which differs in the copy if a message was omitted: `places` finds it.

The copy differs from the original in three points. It has the text of a plain client whose answer to a run was
discarded because a worker answered that run too (RA5.adopt). An input that was held until the end of an answer (R7.5)
comes before that answer. And a heard text for which there was no room (R8.4) is in the copy, because a recording has no
limits.

With `live` the model and the functions are called again: only the frames of people and programs are copied, without
answers, calls and speech, and contexts react as in the original. This is the only way in which a copy has effects. A
client's results of calls are not copied either: the calls that the model makes now wait for the client of the copy.

Each copy names its original in `metadata.replay_of`, and its id is derived from that frame and the new conversation, so
publishing it again changes nothing. Its cause is the copy of the original's cause.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from frameledger import derived
from frameledger.frames import (
    AnyFrame,
    ErrorFrame,
    FunctionCallInProgressFrame,
    LLMMessagesAppendFrame,
    OfRun,
    UnknownFrame,
)
from frameledger.values import value
from frameledger_services.store.replays import RecordedFrame

_OF_THE_ORIGINAL = (
    "run_id",
    "attempt",
    "claim",
    "call_attempt",
    "opened_version",
    "context_version",
    "expected_version",
    "forked_from",
    "worker",
)
"""Fields whose values have a meaning only in the original conversation."""

_LIVE_SPEAKERS = (None, "user")
_ERASURE = "LLMContextEraseFrame"


@value
class Copies:
    """Creates copies of the frames of one conversation for another one."""

    context_id: str
    copy: str
    """The conversation of the copies."""

    live: bool = False

    def of(self, recorded: RecordedFrame, frame: AnyFrame) -> AnyFrame | None:
        """Returns the copy of a frame, or None if it is not copied. `frame` is the decoded payload of the record."""
        if not self._is_copied(recorded, frame):
            return None
        changed: dict[str, Any] = {"id": self._id(recorded.frame_id), "produced_at": None}
        if isinstance(frame, UnknownFrame):
            # The meaning of its fields is unknown here.
            return frame.model_copy(update=changed)
        metadata = {name: value for name, value in frame.metadata.items() if name != "experiment"}
        changed["metadata"] = metadata | self._source(recorded)
        changed |= {name: None for name in _OF_THE_ORIGINAL if getattr(frame, name, None) is not None}
        if frame.type in ("LLMContextFrame", "LLMMirrorFrame") and not self.live:
            changed["react"] = False
        if frame.type == "InterruptionFrame" and self.live:
            # It was heard in the original's answer.
            changed["heard_text"] = None
        return frame.model_copy(update=changed)

    def starts(self, recorded: RecordedFrame) -> list[AnyFrame]:
        """Returns the start frames of the client's calls that began with a frame, to follow its copy; none with
        `live`."""
        if self.live:
            return []
        return [
            FunctionCallInProgressFrame(
                id=derived.copy_id(
                    "replay start", self.context_id, f"{recorded.frame_id}:{call.tool_call_id}", self.copy
                ),
                function_name=call.function_name,
                tool_call_id=call.tool_call_id,
                arguments=call.arguments,
                cancel_on_interruption=True,
                metadata=self._source(recorded),
            )
            for call in recorded.begins
        ]

    def of_message(self, recorded: RecordedFrame, message: Mapping[str, Any]) -> AnyFrame | None:
        """Returns a frame with only this message of a frame that is not copied; None with `live`."""
        if self.live:
            return None
        return LLMMessagesAppendFrame(
            id=self._id(recorded.frame_id), messages=(dict(message),), metadata=self._source(recorded)
        )

    def _source(self, recorded: RecordedFrame) -> dict[str, Any]:
        return {"replay_of": {"context_id": self.context_id, "version": recorded.version}}

    def cause(self, recorded: RecordedFrame, frame: AnyFrame) -> str | None:
        """Returns the id of the cause of a frame created from a recorded one: for the copy, the copy of its cause; for
        the start of a call that began with it, the copy itself."""
        own = self._id(recorded.frame_id)
        if frame.id != own:
            return own
        return None if recorded.causation_id is None else self._id(recorded.causation_id)

    def _is_copied(self, recorded: RecordedFrame, frame: AnyFrame) -> bool:
        if recorded.outcome not in ("applied", "unknown") or frame.type == _ERASURE:
            return False
        if self.live:
            return isinstance(frame, UnknownFrame) or frame.said_by in _LIVE_SPEAKERS
        if not isinstance(frame, OfRun) or isinstance(frame, ErrorFrame) or frame.run_id is None:
            return True
        return (frame.attempt or 1, frame.claim) == (recorded.attempt, recorded.claim)

    def _id(self, frame_id: UUID) -> str:
        return derived.copy_id("replay", self.context_id, str(frame_id), self.copy)
