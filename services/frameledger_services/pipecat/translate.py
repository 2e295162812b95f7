"""Pipecat's frames as ours, by the name of the class, so that no version is imported.

What a frame does to the messages is not said here: the comparison says it (`mirror`). In a mirror these frames write
nothing; they are what is known beside the messages: turns, answers, words, calls, and evidence of the rest as
`pipecat/<name>`, a type that our fold stores and leaves alone.
"""

from __future__ import annotations

from typing import Any

from frameledger_services.pipecat import answer_frames, call_frames, turn_frames
from frameledger_services.pipecat.captured_frame import (
    CapturedFrame,
    Fields,
    ModelService,
    TranslationState,
    Translator,
)
from frameledger_services.pipecat.evidence import EVIDENCE, evidence

TRANSLATORS: dict[str, Translator] = (
    answer_frames.TRANSLATORS | call_frames.TRANSLATORS | turn_frames.TRANSLATORS
)
"""By the name of the class whose frames the function translates, those of derived classes too."""

NOT_OF_THE_CONVERSATION = frozenset({"InputTextRawFrame"})
"""Derived from a class that is told, and not told: text on its way to become what is."""


def name_of(kind: type) -> str | None:
    """The class of Pipecat's by which frames of this class are told; None if they are not."""
    for one in kind.__mro__:
        if one.__name__ in NOT_OF_THE_CONVERSATION:
            return None
        if one.__name__ in TRANSLATORS or one.__name__ in EVIDENCE:
            return one.__name__
    return None


def translate(
    frame: Any, at: str, ns: int, state: TranslationState, service: ModelService | None = None
) -> list[Fields]:
    """The frames that this one becomes. Never raises: a frame that is not what its class says becomes evidence."""
    name = name_of(type(frame))
    if name is None:
        return []
    try:
        if name in EVIDENCE:
            return [evidence(frame, name)]
        return TRANSLATORS[name](CapturedFrame(frame, name, at, ns, service), state)
    except Exception as error:
        return [
            {"type": "pipecat/UntranslatedFrame", "name": name, "error": f"{type(error).__name__}: {error}"}
        ]
