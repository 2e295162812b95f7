"""What all frames have in common: the envelope, the form of ids, and the classes of frames.

The names of frames and of their fields are stored on the log for ever. A class may move; a name may not change.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    StringConstraints,
    ValidationInfo,
    WithJsonSchema,
)
from pydantic_core import CoreSchema, core_schema

INT64_MAX = 2**63 - 1

Id = Annotated[
    str,
    StringConstraints(min_length=1, max_length=255),
    WithJsonSchema({"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[^\\x00]+$"}),
]
"""Text of 1 to 255 characters without NUL. The limit of 255 *bytes*, and NUL, are checked where bytes are decoded: a
pattern here would cost every frame a tenth of its decoding time."""


def _storable(text: str) -> str:
    if "\x00" in text or len(text.encode()) > 255:
        raise ValueError("an id has at most 255 bytes of UTF-8 and no NUL")
    return text


NestedId = Annotated[Id, AfterValidator(_storable)]
"""An `Id` of a value inside a frame. Where bytes are decoded, only the ids of the frame itself are checked."""

ClaimToken = Annotated[str, StringConstraints(min_length=1, max_length=64)]
"""A random token of the claim of a piece of work. Only workers set it."""

AttemptNumber = Annotated[int, Field(ge=1, le=2**31 - 1)]
VersionNumber = Annotated[int, Field(ge=0, le=INT64_MAX)]
Count = Annotated[int, Field(ge=1, le=INT64_MAX)]
TokenCount = Annotated[int, Field(ge=0, le=INT64_MAX)]

SecondInput = Literal["enqueue", "interrupt", "reject", "coalesce"]
"""What an input does if it arrives while a run is open (R7)."""

Speaker = Literal["user", "model", "voice", "function"]
"""The activity that a frame shows: the user's turn, a model's answer, the voice that speaks answers, or a function
call."""


def wire_form(value: Any) -> Any:
    """Returns the JSON value of an object that has a `to_wire()`; anything else unchanged."""
    to_wire = getattr(value, "to_wire", None)
    if callable(to_wire) and not isinstance(value, Mapping):
        return to_wire()
    return value


def wire_items(value: Any) -> Any:
    """Returns `wire_form` of a value and of each of its items: a `ToolsSchema`, or messages and specific ones among
    them."""
    value = wire_form(value)
    if isinstance(value, Mapping | str | bytes) or not isinstance(value, Iterable):
        return value
    return tuple(wire_form(item) for item in value)


@dataclass(frozen=True)
class FromPython:
    """Annotates a field with a conversion that a Python object goes through first. JSON is validated without it, and at
    the same speed."""

    first: Callable[[Any], Any]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        plain = handler(source)
        python = core_schema.no_info_before_validator_function(self.first, plain)
        return core_schema.json_or_python_schema(json_schema=plain, python_schema=python)


# Strict mode refuses a list for a tuple and a Mapping for a dict. Programs write lists.
JsonObject = Annotated[dict[str, Any], Field(strict=False)]
# Stop at the first wrong item: millions of wrong items would produce as many errors.
JsonObjects = Annotated[tuple[JsonObject, ...], Field(strict=False, fail_fast=True), FromPython(wire_items)]


class Value(BaseModel):
    """A frozen value in a record: a frame, or something inside one.

    Unknown fields are kept. Nothing is coerced: `"true"` is not a boolean and `1.0` not an integer. Constructors take
    fields by keyword only, and lists or mappings wherever JSON has arrays or objects.
    """

    model_config = ConfigDict(
        frozen=True, extra="allow", strict=True, validate_by_name=True, validate_by_alias=True
    )

    id_fields: ClassVar[tuple[str, ...]] = ()
    """The fields that contain an `Id`, or null."""

    always_written: ClassVar[frozenset[str]] = frozenset()
    """Optional fields that are written to the log even when they have their default."""


class Frame(Value):
    """One event of a conversation. Compared by value; immutable, so `model_copy(update=...)` creates a changed one."""

    carries_json: ClassVar[bool] = True
    """Whether a field other than `metadata` contains free JSON. False lets the decoder skip a check."""

    said_by: ClassVar[Speaker | None]
    """The speaker whose activity this frame shows; None for frames of clients about the context. No default: without it
    a model that sends such frames would count as silent."""

    id_fields: ClassVar[tuple[str, ...]] = ("id", "mirror")

    type: str
    """The name of the frame."""

    id: Id | None = None
    """Identifies the frame within its context, so that duplicates are recognized. If absent, it is derived from the
    frame's position on the log."""

    v: Annotated[int, Field(ge=1, le=1, json_schema_extra={"const": 1})] = 1
    """The version of this type's schema."""

    pts: Annotated[int, Field(ge=-INT64_MAX, le=INT64_MAX)] | None = None
    """Presentation timestamp of the publisher. Stored; no rule reads it, since the log determines the order."""

    metadata: JsonObject = Field(default_factory=dict)
    """Anything that the publisher wants to keep with the frame. Stored; no rule reads it."""

    produced_at: str | None = None
    """When the publisher created the frame, as written by it. For rules the broker's time counts."""

    mirror: Id | None = None
    """The mirror whose process publishes this (`LLMMirrorFrame`). If the conversation was erased after that mirror
    began, the frame is skipped."""

    @property
    def name(self) -> str:
        """Type and id for people, as in `LLMRunFrame#7f3a`; only the type without an id. Not on the wire."""
        return self.type if self.id is None else f"{self.type}#{self.id}"


class DataFrame(Frame):
    """Has content. This class and the three after it give no priority: the log determines the order."""


class ControlFrame(Frame):
    """Marks a boundary or changes how something works."""


class SystemFrame(Frame):
    """Concerns the conversation as a whole, such as an interruption."""


class UninterruptibleFrame:
    """Must reach the context in any case. This needs no rule, because nothing removes a frame from a log."""

    __slots__ = ()


class OfRun(Frame):
    """A frame that an inference publishes."""

    said_by: ClassVar[Speaker | None] = "model"
    id_fields: ClassVar[tuple[str, ...]] = ("id", "mirror", "run_id")

    run_id: Id | None = None
    """The run that this belongs to. Without one, the frame belongs to the open response."""

    attempt: AttemptNumber | None = None
    """The attempt of that run, 1 if absent. Only frames of the latest attempt count."""

    claim: ClaimToken | None = None
    """The claim under which a worker publishes. It distinguishes two workers to which a database that lost its latest
    commits assigned the same attempt. Without a claim only the attempt counts."""


class OfMirror(Frame):
    """A frame that stops activity in a conversation. The process of a mirror that was replaced must not do that."""

    mirror: Id | None = None
    """The mirror whose process publishes this (`LLMMirrorFrame`). Ignored (`mirror_superseded`) if another mirror, or
    none, keeps the history now. Null: any."""


FROM_THE_WIRE = "from the wire"
"""The validation context for JSON that was parsed elsewhere and is passed as Python objects."""


def in_memory_only(value: Any, info: ValidationInfo) -> Any:
    """For fields that contain Python objects: a JSON value under that name is ignored."""
    return None if info.mode == "json" or info.context == FROM_THE_WIRE else value
