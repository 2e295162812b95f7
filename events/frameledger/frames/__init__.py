"""The vocabulary: every frame as a frozen model, with its JSON in both directions.

`KnownFrame` is the union of all frames of this release and `FRAME_TYPES` maps a type to its class. A frame that this
release cannot read is an `UnknownFrame`. Old names of frames warn and represent their replacement, also in
`isinstance`.
"""

import warnings
from typing import TYPE_CHECKING, Any

from frameledger.frames import old_names
from frameledger.frames.base import (
    ControlFrame,
    DataFrame,
    Frame,
    OfMirror,
    OfRun,
    Speaker,
    SystemFrame,
    UninterruptibleFrame,
    Value,
)
from frameledger.frames.calls import FunctionCallFromLLM, FunctionCallResultProperties, Waiting
from frameledger.frames.codec import (
    FRAME_TYPES,
    AnyFrame,
    KnownFrame,
    encode_frame,
    frame_from_object,
    parse_frame,
    types_said_by,
    wire_object,
)
from frameledger.frames.context import OfContext
from frameledger.frames.response import FinishReason, Usage
from frameledger.frames.snapshot import ContextSnapshot, ForkedFrom
from frameledger.frames.turn import HeardFrame
from frameledger.frames.unknown import UnknownFrame

__all__ = [
    "FRAME_TYPES",
    "AnyFrame",
    "ContextSnapshot",
    "ControlFrame",
    "DataFrame",
    "FinishReason",
    "ForkedFrom",
    "Frame",
    "FunctionCallFromLLM",
    "FunctionCallResultProperties",
    "HeardFrame",
    "KnownFrame",
    "OfContext",
    "OfMirror",
    "OfRun",
    "Speaker",
    "SystemFrame",
    "UninterruptibleFrame",
    "UnknownFrame",
    "Usage",
    "Value",
    "Waiting",
    "encode_frame",
    "frame_from_object",
    "parse_frame",
    "types_said_by",
    "wire_object",
]
# The frames themselves: the type checker reads them from their modules; at run time they are those in the union.
if TYPE_CHECKING:
    from frameledger.frames.calls import *
    from frameledger.frames.context import *
    from frameledger.frames.life import *
    from frameledger.frames.response import *
    from frameledger.frames.turn import *
else:
    globals().update((frame_type.__name__, frame_type) for frame_type in FRAME_TYPES.values())
    __all__ += FRAME_TYPES

_OLD_NAMES = {
    "LLMMessagesFrame": (old_names.LLMMessagesFrame, "LLMMessagesUpdateFrame with run_llm=True"),
    "OpenAILLMContextFrame": (old_names.OpenAILLMContextFrame, "LLMContextFrame with run_llm=True"),
    "OpenAILLMContextAssistantTimestampFrame": (
        FRAME_TYPES["LLMContextAssistantTimestampFrame"],
        "LLMContextAssistantTimestampFrame",
    ),
    "StartInterruptionFrame": (FRAME_TYPES["InterruptionFrame"], "InterruptionFrame"),
}

# Hidden from the type checker, for which a module with `__getattr__` has every name.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _OLD_NAMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        replacement, advice = _OLD_NAMES[name]
        warnings.warn(f"{name} is an old name: use {advice}", DeprecationWarning, stacklevel=2)
        return replacement
