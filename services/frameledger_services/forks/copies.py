"""Copies of recorded frames for another conversation, which nothing acts on a second time.

The conversation of the copies is a *recording* from its first frame on (rule RA5.recording): the fold emits no effect
for it, so no model and no function hears of it. A context or mirror frame among the copies would end that, so each is
given `react: false`. What the copies say is what reached the context:

- Only applied frames are copied, and unknown ones. One that was ignored would not be, in the copy, where the run or the
  call that refused it is not open.
- Of a run only the attempt that counts is copied. What earlier ones said was taken back, which nothing in a copy does;
  a message of theirs that a client rewrote was not, and is copied as a message.
- Runs, attempts, claims and versions are taken off: they name what is in the original. An answer becomes a response
  that names no run, and a call one that somebody else runs, which a recording folds to the same messages.
- The call of a client's function starts without a frame, since the fold starts it (RA5.client). In a recording it does
  not, so behind the copy of what began such calls a start of each is said.
- An erasure is not copied.
- A rewriting names a position, which is another one in the copy where something was left out: `places` finds it.

One thing is in the copy that is not in the original: the words of a plain client whose answer to a run was put aside
because a worker answered that run too (RA5.adopt). And one stands elsewhere: an input that was held until an answer was
over (R7.5) stands before that answer, where it was said. Since no limit acts in a recording, a text that was heard and
had no room (R8.4) is in the copy, too.

With `live` the model and the functions are asked anew instead: only what people and programs said is copied, no answer,
no call and no speech, and contexts react as they did. That is the only way in which a copy causes anything. What a
client answered to a call is an answer to that call, and is not said either: the calls of a client's functions that the
model makes now wait for whoever is the client of the copy, as in any conversation.

Each copy says in `metadata.replay_of` of which frame it is, and its id is derived from that frame and the new
conversation: to publish a copy again says nothing twice. Its cause is the copy of the cause.
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
"""Fields whose values mean something in the conversation of the original only."""

_LIVE_SPEAKERS = (None, "user")
_ERASURE = "LLMContextEraseFrame"


@value
class Copies:
    """Makes copies of the frames of one conversation for another one."""

    context_id: str
    copy: str
    """The conversation of the copies."""

    live: bool = False

    def of(self, recorded: RecordedFrame, frame: AnyFrame) -> AnyFrame | None:
        """Returns the copy of a frame, or None if none is made. `frame` is what the record's payload is decoded to."""
        if not self._is_copied(recorded, frame):
            return None
        changed: dict[str, Any] = {"id": self._id(recorded.frame_id), "produced_at": None}
        if isinstance(frame, UnknownFrame):
            # What its fields mean, nobody knows here.
            return frame.model_copy(update=changed)
        metadata = {name: said for name, said in frame.metadata.items() if name != "experiment"}
        changed["metadata"] = metadata | self._source(recorded)
        changed |= {name: None for name in _OF_THE_ORIGINAL if getattr(frame, name, None) is not None}
        if frame.type in ("LLMContextFrame", "LLMMirrorFrame") and not self.live:
            changed["react"] = False
        if frame.type == "InterruptionFrame" and self.live:
            # What was heard of another answer.
            changed["heard_text"] = None
        return frame.model_copy(update=changed)

    def starts(self, recorded: RecordedFrame) -> list[AnyFrame]:
        """Returns what says, behind the copy of a frame, that calls of a client began with it; nothing if models are
        asked anew."""
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
        """Returns what says only this message of a frame of which no copy is made; None if models are asked anew."""
        if self.live:
            return None
        return LLMMessagesAppendFrame(
            id=self._id(recorded.frame_id), messages=(dict(message),), metadata=self._source(recorded)
        )

    def _source(self, recorded: RecordedFrame) -> dict[str, Any]:
        return {"replay_of": {"context_id": self.context_id, "version": recorded.version}}

    def cause(self, recorded: RecordedFrame, frame: AnyFrame) -> str | None:
        """Returns the id of what caused one of the frames made of a recorded one: of its copy the copy of its cause,
        and of the start of a call that began with it the copy itself."""
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
