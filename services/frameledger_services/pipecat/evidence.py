"""Pipecat frames that are recorded as evidence only: they have no effect on the conversation."""

from __future__ import annotations

from typing import Any

from frameledger_services.pipecat.values import to_json

_SPOKEN = ("text", "append_to_context", "text_type")

EVIDENCE: dict[str, tuple[str, ...]] = {
    "TTSSpeakFrame": _SPOKEN,
    "BotBackchannelFrame": _SPOKEN,
    "TTSStartedFrame": ("context_id", "append_to_context"),
    "TTSStoppedFrame": ("context_id",),
    "AggregatedTextProgressFrame": ("segment_id", "context_id", "accumulated_text", "remaining_text"),
    "LLMMarkerFrame": ("marker", "append_to_context_immediately"),
    "LLMMarkerResponseFrame": ("raw", "marker", "kind"),
    "LLMSummarizeContextFrame": (),
    "LLMContextSummaryRequestFrame": ("request_id", "min_messages_to_keep", "target_context_tokens"),
    "LLMContextSummaryResultFrame": ("request_id", "summary", "last_summarized_index", "error"),
    "EagerTranscriptionFrame": ("text", "user_id", "timestamp", "language"),
    "EagerEndOfTurnCancelFrame": (),
    "UserBackchannelFrame": ("text", "user_id", "timestamp"),
    "VADUserStartedSpeakingFrame": ("start_secs", "timestamp"),
    "VADUserStoppedSpeakingFrame": ("stop_secs", "timestamp"),
    "ProposedUserStartedSpeakingFrame": (),
    "ProposedUserStoppedSpeakingFrame": (),
    "UserMuteStartedFrame": (),
    "UserMuteStoppedFrame": (),
    "UserTurnInferenceCompletedFrame": (),
    "ExternalFunctionCallsStartedFrame": ("function_calls",),
    "ExternalFunctionCallInProgressFrame": ("function_name", "tool_call_id", "arguments"),
    "ExternalFunctionCallResultFrame": ("function_name", "tool_call_id", "result", "is_final"),
    "ExternalFunctionCallCancelFrame": ("function_name", "tool_call_id"),
    "UserImageRequestFrame": ("user_id", "text", "function_name", "tool_call_id"),
    "StopFrame": (),
    "ClientConnectedFrame": (),
    "BotConnectedFrame": (),
    "InputDTMFFrame": ("button",),
    "OutputDTMFFrame": ("button", "buttons"),
    "OutputDTMFUrgentFrame": ("button", "buttons"),
}
"""The recorded fields of each frame type."""


def evidence(frame: Any, name: str) -> dict[str, Any]:
    """Returns the frame as type `pipecat/<name>`. The prefix prevents collisions with Frameledger's types."""
    fields = {one: to_json(getattr(frame, one, None)) for one in EVIDENCE[name]}
    return {"type": f"pipecat/{name}", **{key: value for key, value in fields.items() if value is not None}}
