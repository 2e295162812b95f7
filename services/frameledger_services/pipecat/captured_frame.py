"""A frame of Pipecat as it was captured, and what its translation remembers from one frame to the next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Fields = dict[str, Any]
"""A frame of ours as JSON: its type and fields. Id and time are added when it is sent."""

GENERATED = "generated"
"""The place of capture where a model writes what somebody else speaks. Anywhere else text is what is said."""


@dataclass(slots=True)
class ModelService:
    """A model as the pipeline has it."""

    provider: str | None = None
    model: str | None = None


@dataclass(frozen=True, slots=True)
class CapturedFrame:
    frame: Any
    name: str
    """The class of Pipecat's that it is of, by which it is translated; an application may have derived its own."""

    at: str
    """Where it was captured."""

    ns: int
    """When, in nanoseconds since 1970."""

    service: ModelService | None = None
    """The model whose service it passed."""


@dataclass(slots=True)
class TranslationState:
    """What the translation remembers."""

    answering: bool = False
    line: bool = False
    """Whether the answer is a line that the application had spoken, which no model began."""

    usage: Fields | None = None
    service: ModelService | None = None
    """The model that was asked last."""

    interim_ns: int = 0


Translator = Callable[[CapturedFrame, TranslationState], list[Fields]]


def without_nulls(fields: Fields) -> Fields:
    return {name: value for name, value in fields.items() if value is not None}
