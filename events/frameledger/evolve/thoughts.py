"""Thoughts: a model's reasoning beside its answer, kept with its signature (R2.7)."""

from __future__ import annotations

from frameledger.evolve import runs
from frameledger.evolve.draft import Draft
from frameledger.evolve.fence import refusal
from frameledger.evolve.outcome import Reason
from frameledger.evolve.state import Speech, Thought
from frameledger.evolve.text import plus
from frameledger.frames import LLMThoughtEndFrame, LLMThoughtStartFrame, LLMThoughtTextFrame
from frameledger.ids import RunId
from frameledger.values import replace


def started(draft: Draft, frame: LLMThoughtStartFrame) -> Reason | None:
    """Open a thought; it replaces one that never ended (R2.7)."""
    reason = refusal(draft, frame)
    if reason is not None:
        return reason
    run_id = None if frame.run_id is None else RunId(frame.run_id)
    response = draft.speech.response
    answers = run_id if response is None else response.run_id
    thought = Thought(frame.llm if frame.append_to_context else None, run_id, answers)
    draft.speech = replace(draft.speech, thought=thought)
    return None


def said(draft: Draft, frame: LLMThoughtTextFrame) -> Reason | None:
    """Add a piece to the open thought, unchanged (R2.7)."""
    reason = refusal(draft, frame)
    if reason is not None:
        return reason
    speech = draft.speech
    thought = speech.thought
    if thought is None or thought.run_id != frame.run_id:
        return "no_open_response"
    if thought.llm is not None:
        text = plus(thought.text, frame.text, carries_spaces=True)
        draft.speech = Speech(
            speech.response,
            Thought(thought.llm, thought.run_id, thought.answers, text),
            speech.said,
            speech.bot_since,
        )
    return None


def ended(draft: Draft, frame: LLMThoughtEndFrame) -> Reason | None:
    """Append the thought where it ends, with its signature unchanged; a signature alone is enough (R2.7)."""
    reason = refusal(draft, frame)
    if reason is not None:
        return reason
    thought = draft.speech.thought
    if thought is None or thought.run_id != frame.run_id:
        return "no_open_response"
    draft.speech = replace(draft.speech, thought=None)
    text = "" if thought.text is None else thought.text.joined()
    if thought.llm is not None and (text.strip() or frame.signature is not None):
        message = {"type": "thought", "text": text, "signature": frame.signature}
        position = draft.append({"llm": thought.llm, "message": message}, thought.answers)
        runs.remember_position(draft, thought.answers, position)
    return None
