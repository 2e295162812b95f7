"""Translates Pipecat's frames of turns, transcriptions, errors and settings."""

from __future__ import annotations

from frameledger_services.pipecat.captured_frame import (
    CapturedFrame,
    Fields,
    TranslationState,
    Translator,
    without_nulls,
)
from frameledger_services.pipecat.values import given_settings, to_json

INTERIM_EVERY_NS = 200_000_000
"""Minimum interval between recorded interim transcriptions; recognizers send dozens per second."""


def named(captured: CapturedFrame, state: TranslationState) -> list[Fields]:
    """Returns a frame of the same name without fields."""
    return [{"type": captured.name}]


def interrupted(captured: CapturedFrame, state: TranslationState) -> list[Fields]:
    state.answering = state.line = False
    return [{"type": "InterruptionFrame"}]


def transcribed(captured: CapturedFrame, state: TranslationState) -> list[Fields]:
    frame = captured.frame
    if captured.name == "InterimTranscriptionFrame":
        # An earlier time: the clock was set back.
        if 0 <= captured.ns - state.interim_ns < INTERIM_EVERY_NS:
            return []
        state.interim_ns = captured.ns
    about = {"user_id": frame.user_id, "timestamp": frame.timestamp, "language": frame.language}
    fields: Fields = {"type": captured.name, "text": frame.text}
    fields |= {name: str(to_json(value)) for name, value in about.items() if value is not None}
    if getattr(frame, "finalized", False):
        fields["finalized"] = True
    if frame.includes_inter_frame_spaces:
        fields["includes_inter_frame_spaces"] = True
    return [fields]


def failed(captured: CapturedFrame, state: TranslationState) -> list[Fields]:
    """An error, without its traceback. It ends nothing: later frames show how Pipecat reacts."""
    category = getattr(captured.frame, "category", None)
    fields = {
        "message": str(captured.frame.error),
        "code": None if category is None else str(to_json(category)),
    }
    about = {"processor": str(captured.frame.processor) if captured.frame.processor else None}
    return [{"type": "ErrorFrame", **without_nulls(fields), "metadata": without_nulls(about)}]


def output(captured: CapturedFrame, state: TranslationState) -> list[Fields]:
    return [{"type": captured.name, "skip_tts": bool(captured.frame.skip_tts)}]


def caching(captured: CapturedFrame, state: TranslationState) -> list[Fields]:
    return [{"type": captured.name, "enable": bool(captured.frame.enable)}]


def settings(captured: CapturedFrame, state: TranslationState) -> list[Fields]:
    delta = getattr(captured.frame, "delta", None)
    values = given_settings(captured.frame.settings if delta is None else delta)
    service = getattr(captured.frame, "service", None)
    about = {"service": None if service is None else str(service)}
    return [{"type": captured.name, "settings": values, "metadata": without_nulls(about)}] if values else []


def service(captured: CapturedFrame, state: TranslationState) -> list[Fields]:
    is_realtime = bool(getattr(captured.frame, "is_realtime_service", False))
    about = {"service_name": str(captured.frame.service_name)}
    return [{"type": captured.name, "is_realtime_service": is_realtime, "metadata": about}]


def time_of_answer(captured: CapturedFrame, state: TranslationState) -> list[Fields]:
    return [{"type": captured.name, "timestamp": str(captured.frame.timestamp)}]


TRANSLATORS: dict[str, Translator] = {
    "UserStartedSpeakingFrame": named,
    "UserStoppedSpeakingFrame": named,
    "BotStartedSpeakingFrame": named,
    "BotStoppedSpeakingFrame": named,
    "InterruptionFrame": interrupted,
    "TranscriptionFrame": transcribed,
    "InterimTranscriptionFrame": transcribed,
    "TranslationFrame": transcribed,
    "ErrorFrame": failed,
    "LLMConfigureOutputFrame": output,
    "LLMEnablePromptCachingFrame": caching,
    "LLMUpdateSettingsFrame": settings,
    "LLMServiceMetadataFrame": service,
    "LLMContextAssistantTimestampFrame": time_of_answer,
}
