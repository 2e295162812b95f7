"""The recording: the frames of one conversation, each with the pause before it and who published it.

`conversation.jsonl` has one line for each frame. A `run_id` in it says at which version of the context the run was
asked for, because the id itself follows from the context that the conversation is played in. A line with the `id` of
an earlier one is that frame once more.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, Field

from frameledger.derived import run_id
from frameledger.frames import AnyFrame
from frameledger.ids import ContextId, Version
from frameledger.record import decode

CONVERSATION = Path(__file__).with_name("conversation.jsonl")


class Line(BaseModel):
    """One line of the recording."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    after: float = Field(ge=0)
    """Seconds after the frame before it."""

    by: str
    """Who publishes it."""

    note: str = ""
    """What happens here, for those who watch."""

    frame: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Cue:
    """A frame that is to be published, with an id; how long after the one before it, in seconds; and by whom."""

    after: float
    by: str
    note: str
    frame: AnyFrame


def lines() -> tuple[Line, ...]:
    """The recording as it lies in the file."""
    return tuple(Line.model_validate_json(line) for line in CONVERSATION.read_bytes().splitlines())


def cues(context_id: ContextId) -> tuple[Cue, ...]:
    """The recording as a conversation of this context. Frames that have no id get a new one each time."""
    return tuple(
        Cue(line.after, f"frameledger/demo/{line.by}", line.note, _frame(line.frame, context_id))
        for line in lines()
    )


def _frame(recorded: dict[str, Any], context_id: ContextId) -> AnyFrame:
    value = {"id": str(uuid4()), **recorded}
    if "run_id" in value:
        value["run_id"] = run_id(context_id, Version(value["run_id"]["asked_at"]))
    return decode(json.dumps(value).encode())
