"""A captured Pipecat frame, and the state of the translation between frames."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Fields = dict[str, Any]
"""A Frameledger frame as JSON: its type and fields. The id and the time are added when it is encoded."""

USER, ASSISTANT, LLM, OUTPUT = "user", "assistant", "llm", "output"
"""The capture points: the processors at which frames are captured."""

GENERATED = "generated"
"""The capture point of generated text in a pipeline that speaks. Text from any other point is spoken text."""


@dataclass(frozen=True, slots=True)
class Model:
    """The provider and model of an LLM service at some time."""

    provider: str | None = None
    model: str | None = None


@dataclass(slots=True)
class ModelService:
    """An LLM service of the pipeline."""

    provider: str | None = None
    processor: Any = None
    model: Model | None = None
    """The model of the latest request: an application can change it between two answers."""

    is_ours: bool = True
    """Whether it answers, or last answered, the recorded context. Another LLM of the pipeline, such as a classifier,
    has its own context."""


@dataclass(
    slots=True
)  # not frozen: each token creates one, and a frozen one takes four times as long to create
class CapturedFrame:
    """A Pipecat frame with the place and time of its capture."""

    frame: Any
    name: str
    """The name of the Pipecat class whose translator applies: its own class or a base class."""

    at: str
    """The capture point."""

    ns: int
    """The capture time in nanoseconds since 1970."""

    model: Model | None = None
    """The model of the LLM service at which it was captured."""


@dataclass(slots=True)
class TranslationState:
    """The state of the translation between frames."""

    answering: bool = False
    line: bool = False
    """Whether the answer is a line spoken by the application instead of a model."""

    usage: Fields | None = None
    model: Model | None = None
    """The model of the latest request."""

    interim_ns: int = 0


Translator = Callable[[CapturedFrame, TranslationState], list[Fields]]


def without_nulls(fields: Fields) -> Fields:
    """Returns the fields whose values are not None."""
    return {name: value for name, value in fields.items() if value is not None}
