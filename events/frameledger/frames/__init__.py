"""The vocabulary: every frame as a frozen model, with its JSON in both directions.

`KnownFrame` is the union of all frames of this release and `FRAME_TYPES` finds a class by its type. A frame
that this release cannot read is an `UnknownFrame`. Old names of frames warn and stand for their
replacement, by `isinstance` too.
"""

import warnings
from typing import TYPE_CHECKING, Any

from frameledger.frames import old_names
from frameledger.frames.base import (
    ControlFrame,
    DataFrame,
    Frame,
    OfRun,
    SystemFrame,
    UninterruptibleFrame,
    Value,
)
from frameledger.frames.calls import (
    FunctionCallCancelFrame,
    FunctionCallFromLLM,
    FunctionCallInProgressFrame,
    FunctionCallResultFrame,
    FunctionCallResultProperties,
    FunctionCallsStartedFrame,
    Waiting,
)
from frameledger.frames.codec import (
    FRAME_TYPES,
    AnyFrame,
    KnownFrame,
    encode_frame,
    frame_from_object,
    parse_frame,
    wire_object,
)
from frameledger.frames.context import (
    ContextSnapshot,
    LLMConfigureOutputFrame,
    LLMContextFrame,
    LLMEnablePromptCachingFrame,
    LLMMessagesAppendFrame,
    LLMMessagesUpdateFrame,
    LLMRunFrame,
    LLMSetToolChoiceFrame,
    LLMSetToolsFrame,
    LLMUpdateSettingsFrame,
)
from frameledger.frames.life import CancelFrame, EndFrame, LLMServiceMetadataFrame, StartFrame
from frameledger.frames.response import (
    ErrorFrame,
    FinishReason,
    LLMAssistantPushAggregationFrame,
    LLMContextAssistantTimestampFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    LLMThoughtEndFrame,
    LLMThoughtStartFrame,
    LLMThoughtTextFrame,
    TextFrame,
    Usage,
    VisionFullResponseEndFrame,
    VisionFullResponseStartFrame,
    VisionTextFrame,
)
from frameledger.frames.turn import (
    BotStartedSpeakingFrame,
    BotStoppedSpeakingFrame,
    HeardFrame,
    InterimTranscriptionFrame,
    InterruptionFrame,
    TranscriptionFrame,
    TranslationFrame,
    UserStartedSpeakingFrame,
    UserStoppedSpeakingFrame,
)
from frameledger.frames.unknown import UnknownFrame

__all__ = [
    "FRAME_TYPES",
    "AnyFrame",
    "BotStartedSpeakingFrame",
    "BotStoppedSpeakingFrame",
    "CancelFrame",
    "ContextSnapshot",
    "ControlFrame",
    "DataFrame",
    "EndFrame",
    "ErrorFrame",
    "FinishReason",
    "Frame",
    "FunctionCallCancelFrame",
    "FunctionCallFromLLM",
    "FunctionCallInProgressFrame",
    "FunctionCallResultFrame",
    "FunctionCallResultProperties",
    "FunctionCallsStartedFrame",
    "HeardFrame",
    "InterimTranscriptionFrame",
    "InterruptionFrame",
    "KnownFrame",
    "LLMAssistantPushAggregationFrame",
    "LLMConfigureOutputFrame",
    "LLMContextAssistantTimestampFrame",
    "LLMContextFrame",
    "LLMEnablePromptCachingFrame",
    "LLMFullResponseEndFrame",
    "LLMFullResponseStartFrame",
    "LLMMessagesAppendFrame",
    "LLMMessagesUpdateFrame",
    "LLMRunFrame",
    "LLMServiceMetadataFrame",
    "LLMSetToolChoiceFrame",
    "LLMSetToolsFrame",
    "LLMTextFrame",
    "LLMThoughtEndFrame",
    "LLMThoughtStartFrame",
    "LLMThoughtTextFrame",
    "LLMUpdateSettingsFrame",
    "OfRun",
    "StartFrame",
    "SystemFrame",
    "TextFrame",
    "TranscriptionFrame",
    "TranslationFrame",
    "UninterruptibleFrame",
    "UnknownFrame",
    "Usage",
    "UserStartedSpeakingFrame",
    "UserStoppedSpeakingFrame",
    "Value",
    "VisionFullResponseEndFrame",
    "VisionFullResponseStartFrame",
    "VisionTextFrame",
    "Waiting",
    "encode_frame",
    "frame_from_object",
    "parse_frame",
    "wire_object",
]


_OLD_NAMES = {
    "LLMMessagesFrame": (old_names.LLMMessagesFrame, "LLMMessagesUpdateFrame with run_llm=True"),
    "OpenAILLMContextFrame": (old_names.OpenAILLMContextFrame, "LLMContextFrame with run_llm=True"),
    "OpenAILLMContextAssistantTimestampFrame": (
        LLMContextAssistantTimestampFrame,
        "LLMContextAssistantTimestampFrame",
    ),
    "StartInterruptionFrame": (InterruptionFrame, "InterruptionFrame"),
}

# Hidden from the type checker, for which a module with `__getattr__` has every name there is.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _OLD_NAMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        replacement, advice = _OLD_NAMES[name]
        warnings.warn(f"{name} is an old name: use {advice}", DeprecationWarning, stacklevel=2)
        return replacement
