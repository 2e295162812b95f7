"""Turns of the user and of the voice, errors, and the terms of answers."""

from __future__ import annotations

from frameledger_services.pipecat.seen import Family, Fields, Heard, Seen, without_nulls
from frameledger_services.pipecat.values import given, to_json

INTERIM_EVERY_NS = 200_000_000
"""Of interim words, of which recognisers send dozens a second, one is told in this time at most."""


def named(seen: Seen, heard: Heard) -> list[Fields]:
    """A frame that has our name and no field."""
    return [{"type": seen.name}]


def interrupted(seen: Seen, heard: Heard) -> list[Fields]:
    heard.answering = heard.line = False
    return [{"type": "InterruptionFrame"}]


def transcribed(seen: Seen, heard: Heard) -> list[Fields]:
    frame = seen.frame
    if seen.name == "InterimTranscriptionFrame":
        if seen.ns - heard.interim_ns < INTERIM_EVERY_NS:
            return []
        heard.interim_ns = seen.ns
    about = {"user_id": frame.user_id, "timestamp": frame.timestamp, "language": frame.language}
    said: Fields = {"type": seen.name, "text": frame.text}
    said |= {name: str(to_json(value)) for name, value in about.items() if value is not None}
    if getattr(frame, "finalized", False):
        said["finalized"] = True
    if frame.includes_inter_frame_spaces:
        said["includes_inter_frame_spaces"] = True
    return [said]


def failed(seen: Seen, heard: Heard) -> list[Fields]:
    """An error is told, and ends nothing: what Pipecat does about it shows in what follows. No traceback."""
    category = getattr(seen.frame, "category", None)
    said = {"message": str(seen.frame.error), "code": None if category is None else str(to_json(category))}
    about = {"processor": str(seen.frame.processor) if seen.frame.processor else None}
    return [{"type": "ErrorFrame", **without_nulls(said), "metadata": without_nulls(about)}]


def output(seen: Seen, heard: Heard) -> list[Fields]:
    return [{"type": seen.name, "skip_tts": bool(seen.frame.skip_tts)}]


def caching(seen: Seen, heard: Heard) -> list[Fields]:
    return [{"type": seen.name, "enable": bool(seen.frame.enable)}]


def settings(seen: Seen, heard: Heard) -> list[Fields]:
    delta = getattr(seen.frame, "delta", None)
    said = given(seen.frame.settings if delta is None else delta)
    service = getattr(seen.frame, "service", None)
    about = {"service": None if service is None else str(service)}
    return [{"type": seen.name, "settings": said, "metadata": without_nulls(about)}] if said else []


def service(seen: Seen, heard: Heard) -> list[Fields]:
    is_realtime = bool(getattr(seen.frame, "is_realtime_service", False))
    about = {"service_name": str(seen.frame.service_name)}
    return [{"type": seen.name, "is_realtime_service": is_realtime, "metadata": about}]


def time_of_answer(seen: Seen, heard: Heard) -> list[Fields]:
    return [{"type": seen.name, "timestamp": str(seen.frame.timestamp)}]


FAMILIES: dict[str, Family] = {
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
