"""Responses: the assistant's text, which attempt may write it, and what is kept (R2, RA5.attempts).

Frames with a run id are accepted only from the open run's latest attempt. A response without one adopts the open run if
nothing of that run was folded yet; otherwise it belongs to no run.
"""

from __future__ import annotations

from frameledger import derived
from frameledger.evolve import calls, runs
from frameledger.evolve.changes import RunStarted
from frameledger.evolve.draft import Draft
from frameledger.evolve.fence import OfARun, is_anothers, refusal, supersedes
from frameledger.evolve.outcome import Reason
from frameledger.evolve.state import Response, Run, Speech, Thought
from frameledger.evolve.text import plus, trimmed
from frameledger.frames import ErrorFrame, LLMFullResponseEndFrame, LLMFullResponseStartFrame, TextFrame
from frameledger.ids import Attempt, Position, RunId
from frameledger.values import replace


def started(draft: Draft, frame: LLMFullResponseStartFrame) -> Reason | None:
    """Open a response: an attempt of the open run, or one that names no run (R2.1, RA5.attempts)."""
    if frame.run_id is not None:
        return _attempt_started(draft, frame)
    response = draft.speech.response
    if response is not None:
        if response.fenced:
            return "run_response_open"
        _finish(draft, response)
        runs.close_if_open(draft, response.run_id, "replaced")
        runs.open_pending(draft)
    run = draft.runs.open
    if run is not None and run.untouched:
        runs.put(draft, replace(run, adopted=True))
        draft.changes.append(RunStarted(run.run_id, run.attempt))
        _open(draft, Response(draft.version, run.run_id))
    else:
        noted = draft.runs.noted
        if noted is None:
            noted = derived.run_id(draft.context_id, draft.version)
        else:
            draft.runs = replace(draft.runs, noted=None)
        _open(draft, Response(draft.version, counts_as=noted))
    return None


def _attempt_started(draft: Draft, frame: LLMFullResponseStartFrame) -> Reason | None:
    run = draft.runs.open
    if run is None or run.run_id != frame.run_id:
        return "run_over"
    attempt = Attempt(frame.attempt or 1)
    if not supersedes(attempt, frame.claim, run.attempt, run.claim):
        return "attempt_superseded"
    response = draft.speech.response
    if response is not None and response.run_id != run.run_id:
        _finish(draft, response)
    _retract_earlier_attempts(draft, run, response)
    claim = frame.claim
    runs.put(draft, run.in_attempt(attempt, claim))
    draft.changes.append(RunStarted(run.run_id, attempt, claim))
    _open(draft, Response(draft.version, run.run_id, fenced=True))
    return None


def _retract_earlier_attempts(draft: Draft, run: Run, response: Response | None) -> None:
    """Retract the messages of earlier attempts, and drop their open text, open thought and announced calls, for the
    next attempt."""
    for position in run.positions:
        draft.retract(position)
    if response is not None:  # A thought that arrived outside of any response does not belong to the run.
        draft.speech = replace(draft.speech, thought=None)
    unnamed = response.opened_version if response is not None and response.run_id == run.run_id else None
    calls.forget_announced(draft, run.run_id, unnamed)


def _open(draft: Draft, response: Response) -> None:
    speech = draft.speech
    draft.speech = Speech(response, speech.thought, said=(), bot_since=speech.bot_since)


def said(draft: Draft, frame: TextFrame, carries_spaces: bool) -> Reason | None:
    """Add a piece of text to the open response (R2.1, R2.2)."""
    reason = refusal(draft, frame)
    if reason is not None:
        return reason
    speech = draft.speech
    response = speech.response
    if response is None:
        return "no_open_response"
    piece = frame.text
    if piece and frame.append_to_context:
        text = plus(response.text, piece, carries_spaces)
        draft.speech = Speech(
            Response(
                response.opened_version,
                response.run_id,
                response.fenced,
                text,
                response.counts_as,
                response.stays,
            ),
            speech.thought,
            speech.said,
            speech.bot_since,
        )
    return None


def pushed(draft: Draft, frame: OfARun) -> Reason | None:
    """Write the text so far; the response stays open (R2.5)."""
    reason = refusal(draft, frame)
    if reason is not None:
        return reason
    response = draft.speech.response
    if response is None:
        return "no_open_response"
    if not trimmed(response.text):
        return "nothing_said"
    position = _write(draft, response, replace(response, text=None), draft.speech.thought)
    runs.remember_position(draft, response.run_id, position)
    return None


def ended(draft: Draft, frame: LLMFullResponseEndFrame) -> Reason | None:
    """Commit a run at its end: write its text, then dispatch its calls (RA5.commit)."""
    reason = refusal(draft, frame)
    if reason is not None:
        return reason
    response = draft.speech.response
    if response is None:
        return "no_open_response"
    thought = draft.speech.thought
    _write(draft, response, None, None if thought is not None and thought.run_id is not None else thought)
    run = draft.runs.open
    if run is None or run.run_id != response.run_id:
        return None
    if frame.finish_reason == "error":
        calls.forget_announced(draft, run.run_id)
        runs.close(draft, "failed")
    else:
        calls.commit(draft, run.run_id, run.attempt)
        runs.close(draft, "ended")
    return None


def failed(draft: Draft, frame: ErrorFrame) -> Reason | None:
    """Close the run of a fatal error and keep its text so far (R4.4). Any other error is only recorded.

    A fatal error is also accepted from a later attempt than the latest, or without one: it comes from a process that
    found the run dead.
    """
    if not frame.fatal:
        reason = None if frame.run_id is None else refusal(draft, frame)
        # An attempt may fail before its response begins.
        return None if reason == "no_open_response" else reason
    if frame.run_id is None:
        return _failed_without_a_run_id(draft)
    run = draft.runs.open
    if run is None or run.run_id != frame.run_id:
        return "run_over"
    if frame.attempt is not None and (
        frame.attempt < run.attempt or (frame.attempt == run.attempt and is_anothers(frame.claim, run.claim))
    ):
        return "attempt_superseded"
    _break_off(draft, run.run_id)
    return None


def _failed_without_a_run_id(draft: Draft) -> Reason | None:
    response, run = draft.speech.response, draft.runs.open
    if response is not None:
        if response.fenced:
            return "run_response_open"
        _finish(draft, response)
        runs.close_if_open(draft, response.run_id, "failed")
    elif run is not None and run.untouched:
        _break_off(draft, run.run_id)
    return None


def _break_off(draft: Draft, run_id: RunId) -> None:
    response = draft.speech.response
    if response is not None and response.run_id == run_id:
        _finish(draft, response)
    calls.forget_announced(draft, run_id)
    runs.close(draft, "failed")


def interrupted(draft: Draft, heard_text: str | None) -> None:
    """Keep the text so far, or the part that was heard, and drop an open thought (R2.6, R6.7)."""
    speech = draft.speech
    response, said = speech.response, speech.said
    if heard_text is not None and said is not None:
        said = _correct(draft, said, response, heard_text.strip())
    elif response is not None:
        _write(draft, response)
        return
    draft.speech = Speech(None, None, said, speech.bot_since)


def _correct(
    draft: Draft, positions: tuple[Position, ...], response: Response | None, heard: str
) -> tuple[Position, ...]:
    """Replace the last response's text by the part that was heard; the log keeps the whole. Returns its positions."""
    message = {"role": "assistant", "content": heard}
    written: tuple[Position, ...] = ()
    if heard and positions:
        draft.rewrite(positions[0], message)
        written = positions[:1]
    elif heard and response is not None:
        position = draft.append_text(message, response.run_id)
        written = () if position is None else (position,)
    for position in positions[len(written) :]:
        draft.retract(position)
    return written


def end(draft: Draft) -> None:
    """For `EndFrame` and `CancelFrame`: write the open text and end all speaking (R1.6)."""
    if draft.speech.response is not None:
        _write(draft, draft.speech.response)
    draft.speech = Speech(said=draft.speech.said)


def _finish(draft: Draft, response: Response) -> None:
    """Close a response without an end of its own: keep its text, drop its open thought and announced calls."""
    _write(draft, response)
    calls.forget_announced(draft, None, response.opened_version)


def _write(
    draft: Draft, response: Response, after: Response | None = None, thought: Thought | None = None
) -> Position | None:
    """Append the response's text since it was last written, unless it is only whitespace (R2.3). `after` and `thought`
    are the response and the thought that are open from now on."""
    text = trimmed(response.text)
    position = draft.append_text({"role": "assistant", "content": text}, response.run_id) if text else None
    speech = draft.speech
    said = speech.said
    if position is not None:
        said = None if response.stays else (*(said or ()), position)
    draft.speech = Speech(after, thought, said, speech.bot_since)
    return position
