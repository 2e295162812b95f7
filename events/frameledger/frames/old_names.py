"""Old names of frames, as classes: each creates a frame of its replacement, and recognizes such a frame.

`frameledger.frames` exports them, with a warning. The log has only the names of their replacements, so a frame that was
published with an old name equals the one that is read from the log.
"""

from typing import Any

from frameledger.frames.base import Frame
from frameledger.frames.context import LLMContextFrame, LLMMessagesUpdateFrame


class _RequestsRun(type(Frame)):  # type: ignore[misc]  # the class of pydantic's classes
    """An old name whose frame always requested a run: its instances are the frames of its base that request a run."""

    def __call__(cls, *positional: object, **fields: Any) -> Any:
        if positional:
            raise TypeError(f"{cls.__name__} takes its fields by keyword, as every frame does")
        asking = {**fields, "run_llm": True}
        return cls.__base__(**asking) if cls in OLD_NAMES else super().__call__(**asking)

    def __instancecheck__(cls, value: object) -> bool:
        if cls not in OLD_NAMES:
            return bool(super().__instancecheck__(value))
        return isinstance(value, cls.__base__) and getattr(value, "run_llm", None) is True


class LLMMessagesFrame(LLMMessagesUpdateFrame, metaclass=_RequestsRun):
    """A conversation to be run: `LLMMessagesUpdateFrame` with `run_llm` true."""


class OpenAILLMContextFrame(LLMContextFrame, metaclass=_RequestsRun):
    """A context to be run: `LLMContextFrame` with `run_llm` true."""


OLD_NAMES = (LLMMessagesFrame, OpenAILLMContextFrame)
