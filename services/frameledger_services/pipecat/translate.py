"""Translates Pipecat's frames to Frameledger's, by class name, so that no version of Pipecat is imported.

Changes of messages are not translated: `mirror` finds them by comparison. In a mirrored conversation these frames write
no messages; they record turns, answers, words and calls, and all other frames as evidence of type `pipecat/<name>`,
which the fold stores without effect.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from frameledger_services.pipecat import answer_frames, call_frames, turn_frames
from frameledger_services.pipecat.captured_frame import (
    CapturedFrame,
    Fields,
    Model,
    TranslationState,
    Translator,
)
from frameledger_services.pipecat.evidence import EVIDENCE, evidence

TRANSLATORS: dict[str, Translator] = (
    answer_frames.TRANSLATORS | call_frames.TRANSLATORS | turn_frames.TRANSLATORS
)
"""The translators by class name. They also translate frames of derived classes."""

NOT_OF_THE_CONVERSATION = frozenset({"InputTextRawFrame"})
"""Classes that are not translated although a base class is: their text is in a later frame, which is translated."""


@cache
def name_of(kind: type) -> str | None:
    """Returns the name of the Pipecat class by which frames of this class are translated; None if they are not."""
    for base in kind.__mro__:
        if base.__name__ in NOT_OF_THE_CONVERSATION:
            return None
        if base.__name__ in TRANSLATORS or base.__name__ in EVIDENCE:
            return base.__name__
    return None


def translate(
    frame: Any, at: str, ns: int, state: TranslationState, model: Model | None = None
) -> list[Fields]:
    """Returns the translated frames. Never raises: a frame that cannot be translated becomes evidence."""
    kind: type = type(frame)
    name = name_of(kind)
    if name is None:
        return []
    try:
        if name in EVIDENCE:
            return [evidence(frame, name)]
        return TRANSLATORS[name](CapturedFrame(frame, name, at, ns, model), state)
    except Exception as error:
        return [
            {"type": "pipecat/UntranslatedFrame", "name": name, "error": f"{type(error).__name__}: {error}"}
        ]
