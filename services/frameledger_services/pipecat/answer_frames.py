"""Translates Pipecat's frames of answers: generated text, spoken text, thoughts, tokens and cost."""

from __future__ import annotations

from frameledger_services.pipecat.captured_frame import (
    GENERATED,
    CapturedFrame,
    Fields,
    TranslationState,
    Translator,
    without_nulls,
)
from frameledger_services.pipecat.values import to_json


def started(captured: CapturedFrame, state: TranslationState) -> list[Fields]:
    state.answering, state.line = True, False
    fields: Fields = {"skip_tts": captured.frame.skip_tts}
    model = captured.model or state.model
    if model is not None:
        fields |= {"provider": model.provider, "model": model.model}
    return [{"type": "LLMFullResponseStartFrame", **without_nulls(fields)}]


def ended(captured: CapturedFrame, state: TranslationState) -> list[Fields]:
    state.answering = state.line = False
    fields = {"usage": state.usage, "skip_tts": captured.frame.skip_tts}
    state.usage = None
    return [{"type": "LLMFullResponseEndFrame", **without_nulls(fields)}]


def text(captured: CapturedFrame, state: TranslationState) -> list[Fields]:
    """A generated token. In a pipeline with speech, the spoken words follow as separate frames."""
    frame = captured.frame
    if not frame.text:
        return []
    fields: Fields = {"type": "LLMTextFrame", "text": frame.text}
    if captured.at == GENERATED or not frame.append_to_context:
        fields["append_to_context"] = False
    if not frame.includes_inter_frame_spaces:
        fields["includes_inter_frame_spaces"] = False
    if frame.skip_tts is not None:
        fields["skip_tts"] = frame.skip_tts
    return [fields]


def words(captured: CapturedFrame, state: TranslationState) -> list[Fields]:
    """Spoken words. A line outside of an answer gets a start frame, so that it belongs to an answer."""
    frame = captured.frame
    spoken = getattr(frame, "raw_text", None) or frame.text
    if not spoken:
        return []
    about = {name: to_json(getattr(frame, name, None)) for name in ("context_id", "segment_id", "text_type")}
    fields: Fields = {"type": "TextFrame", "text": spoken, "metadata": without_nulls(about)}
    if not frame.append_to_context:
        fields["append_to_context"] = False
    if frame.includes_inter_frame_spaces:
        fields["includes_inter_frame_spaces"] = True
    if isinstance(frame.pts, int):
        fields["pts"] = frame.pts
    if state.answering or not frame.append_to_context:
        return [fields]
    state.answering = state.line = True
    return [{"type": "LLMFullResponseStartFrame"}, fields]


def pushed(captured: CapturedFrame, state: TranslationState) -> list[Fields]:
    """Turns the words spoken so far into a message: the end of a line, or a part of an answer."""
    frames: list[Fields] = [{"type": "LLMAssistantPushAggregationFrame"}]
    if state.line:
        state.answering = state.line = False
        frames.append({"type": "LLMFullResponseEndFrame"})
    return frames


def thought_started(captured: CapturedFrame, state: TranslationState) -> list[Fields]:
    llm = captured.frame.llm or None
    keep = bool(captured.frame.append_to_context and llm)
    return [{"type": "LLMThoughtStartFrame", "append_to_context": keep, **without_nulls({"llm": llm})}]


def thought_text(captured: CapturedFrame, state: TranslationState) -> list[Fields]:
    return [{"type": "LLMThoughtTextFrame", "text": captured.frame.text}]


def thought_ended(captured: CapturedFrame, state: TranslationState) -> list[Fields]:
    return [{"type": "LLMThoughtEndFrame", "signature": to_json(captured.frame.signature)}]


def asked(captured: CapturedFrame, state: TranslationState) -> list[Fields]:
    """A request to answer the context. A speculative request uses a copy and is not part of the conversation."""
    if getattr(captured.frame, "speculation", False):
        return [{"type": "pipecat/LLMContextFrame", "speculation": True}]
    state.model, state.usage = captured.model, None
    return [{"type": "LLMRunFrame"}]


def metrics(captured: CapturedFrame, state: TranslationState) -> list[Fields]:
    data: list[Fields] = []
    for entry in captured.frame.data:
        if hasattr(tokens := getattr(entry, "value", None), "prompt_tokens"):
            state.usage = _usage(tokens)
        shown = to_json(entry)
        data.append({"kind": type(entry).__name__} | (shown if isinstance(shown, dict) else {}))
    return [{"type": "pipecat/MetricsFrame", "data": data}]


_COUNTS = {
    "input_tokens": "prompt_tokens",
    "output_tokens": "completion_tokens",
    "cache_read_tokens": "cache_read_input_tokens",
    "cache_write_tokens": "cache_creation_input_tokens",
    "reasoning_tokens": "reasoning_tokens",
}


def _usage(tokens: object) -> Fields:
    counts = {ours: getattr(tokens, theirs, None) for ours, theirs in _COUNTS.items()}
    return {name: count for name, count in counts.items() if type(count) is int and count >= 0}


TRANSLATORS: dict[str, Translator] = {
    "LLMFullResponseStartFrame": started,
    "LLMFullResponseEndFrame": ended,
    "LLMTextFrame": text,
    "TextFrame": words,
    "LLMAssistantPushAggregationFrame": pushed,
    "LLMThoughtStartFrame": thought_started,
    "LLMThoughtTextFrame": thought_text,
    "LLMThoughtEndFrame": thought_ended,
    "LLMContextFrame": asked,
    "MetricsFrame": metrics,
}
