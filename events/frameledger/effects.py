"""Effects: what services do because a frame was folded. They contain ids and names, never content.

`causation_id` is the id of that frame, as a UUID as in the tables. A worker that acts on the effect names it as the
cause of the frames that it publishes (`headers.CAUSATION_ID`), without reading it elsewhere. None if it is unknown.

The id of an effect is derived from what it names: made again with `of`, it is the same effect.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self
from uuid import UUID

from frameledger import derived
from frameledger.ids import ContextId, GroupId, RunId, ToolCallId, Version


@dataclass(frozen=True, slots=True)
class RunInference:
    """Run the model on the context as it is at `version`, and answer as `run_id`."""

    effect: ClassVar[str] = "run_inference"

    id: str
    context_id: ContextId
    version: Version
    run_id: RunId
    causation_id: UUID | None = None

    @classmethod
    def of(
        cls, context_id: ContextId, version: Version, run_id: RunId, causation_id: UUID | None = None
    ) -> Self:
        """Returns the effect that the frame at this version has for a run."""
        effect_id = derived.effect_id(cls.effect, context_id, version, run_id)
        return cls(effect_id, context_id, version, run_id, causation_id)


@dataclass(frozen=True, slots=True)
class CallFunction:
    """Start the call that was requested at `requested_version`, as the `ordinal`-th of its announcement."""

    effect: ClassVar[str] = "call_function"

    id: str
    context_id: ContextId
    version: Version
    requested_version: Version
    ordinal: int
    tool_call_id: ToolCallId
    function_name: str
    group_id: GroupId | None
    causation_id: UUID | None = None

    @classmethod
    def of(
        cls,
        context_id: ContextId,
        version: Version,
        requested_version: Version,
        ordinal: int,
        tool_call_id: ToolCallId,
        function_name: str,
        group_id: GroupId | None,
        causation_id: UUID | None = None,
    ) -> Self:
        """Returns the effect that the frame at this version has for a call."""
        named = requested_version, ordinal, tool_call_id, function_name, group_id
        effect_id = derived.effect_id(cls.effect, context_id, version, tool_call_id)
        return cls(effect_id, context_id, version, *named, causation_id)


@dataclass(frozen=True, slots=True)
class Cancel:
    """Stop working on a run or a call; exactly one of the two is named."""

    effect: ClassVar[str] = "cancel"

    id: str
    context_id: ContextId
    version: Version
    run_id: RunId | None = None
    tool_call_id: ToolCallId | None = None
    causation_id: UUID | None = None


Effect = RunInference | CallFunction | Cancel


def to_wire(effect: Effect) -> dict[str, Any]:
    """Returns the effect as the JSON object on its topic; fields without a value are omitted."""
    named = ((name, getattr(effect, name)) for name in effect.__slots__)
    wire = {name: value for name, value in named if value is not None}
    if effect.causation_id is not None:
        wire["causation_id"] = str(effect.causation_id)
    return {"effect": effect.effect} | wire
