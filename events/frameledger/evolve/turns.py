"""Turns: the user's words, when they are written, and when they request a run (R1)."""

from __future__ import annotations

from collections.abc import Mapping

from frameledger.evolve import inputs, runs
from frameledger.evolve.draft import Draft
from frameledger.evolve.outcome import Reason
from frameledger.evolve.state import RejectedTurn, Turn
from frameledger.evolve.text import Text, plus, trimmed
from frameledger.frames import (
    InterimTranscriptionFrame,
    TranscriptionFrame,
    UserStartedSpeakingFrame,
    UserStoppedSpeakingFrame,
)
from frameledger.frames.base import SecondInput
from frameledger.values import replace


def started(draft: Draft, frame: UserStartedSpeakingFrame) -> Reason | None:
    """Open a turn; a turn that still waits is first closed with its words so far (R1.1, R1.5). A start that is rejected
    as a second input opens none; if its own `second_input` is `reject`, its words are rejected too (R7.3)."""
    turn = draft.turn
    if turn is not None and turn.speaking:
        return None
    if inputs.action(draft, frame.second_input) == "reject":
        draft.rejected_turn = None if frame.second_input is None else RejectedTurn(draft.version)
        return "busy"
    draft.rejected_turn = None
    if turn is not None:
        _close(draft, turn)
    draft.turn = Turn(draft.version, second_input=frame.second_input)
    return None


def stopped(draft: Draft, frame: UserStoppedSpeakingFrame) -> Reason | None:
    """Close the turn, unless its final words are still to come; a second stop closes it anyway (R1.2)."""
    turn, rejected = draft.turn, draft.rejected_turn
    if rejected is not None and frame.opened_version in (None, rejected.opened_version):
        is_over = not (rejected.speaking and rejected.words_pending)
        draft.rejected_turn = None if is_over else replace(rejected, speaking=False)
    if turn is None:
        return "target_over" if frame.opened_version is not None else "no_open_turn"
    if frame.opened_version is not None and frame.opened_version != turn.opened_version:
        return "target_over"
    words_are_complete = turn.words is not None and not turn.interim_pending
    if words_are_complete or not turn.speaking:
        _close(draft, turn)
        _request_deferred_run(draft)
        return None
    draft.turn = replace(turn, speaking=False, stopped_version=draft.version)
    if not turn.interim_pending:
        _request_deferred_run(draft)
    return None


def transcribed(draft: Draft, frame: TranscriptionFrame) -> Reason | None:
    """Add final words to the open turn, or make them a turn of their own (R1.1, R1.2, R1.4). Words of a turn that its
    start rejected are rejected while the conversation is busy (R7.3)."""
    if not frame.text.strip():
        return "nothing_said"
    turn, rejected = draft.turn, draft.rejected_turn
    if turn is None:
        second_input = frame.second_input
        if rejected is not None:
            second_input = second_input or "reject"
            draft.rejected_turn = replace(rejected, words_pending=False) if rejected.speaking else None
        if inputs.action(draft, second_input) == "reject":
            return "busy"
        _write_and_request(draft, plus(None, frame.text, frame.includes_inter_frame_spaces), second_input)
        return None
    words = plus(turn.words, frame.text, frame.includes_inter_frame_spaces)
    heard = Turn(
        turn.opened_version,
        turn.speaking,
        words,
        interim_pending=False,
        stopped_version=turn.stopped_version,
        second_input=turn.second_input,
    )
    draft.turn = heard
    if not heard.speaking:
        _close(draft, heard)
    return None


def interim(draft: Draft, frame: InterimTranscriptionFrame) -> Reason | None:
    """Note interim words, which only indicate that final ones follow (R1.1)."""
    if not frame.text.strip():
        return "nothing_said"
    if draft.turn is None:
        if draft.rejected_turn is not None:
            draft.rejected_turn = replace(draft.rejected_turn, words_pending=True)
        return "no_open_turn"
    if not draft.turn.interim_pending:
        draft.turn = replace(draft.turn, interim_pending=True)
    return None


def end(draft: Draft) -> None:
    """Write the words so far at the end of the context, without requesting a run (R1.6)."""
    draft.rejected_turn = None
    if draft.turn is not None:
        _write(draft, draft.turn.words)
        draft.turn = None


def _close(draft: Draft, turn: Turn) -> None:
    """Write the turn's words and request the run that answers them, which covers a deferred one. Without words nothing
    is written, and a deferred run stays deferred."""
    draft.turn = None
    if trimmed(turn.words):
        if draft.runs.owed_to_turn:
            draft.runs = replace(draft.runs, owed_to_turn=False)
        _write_and_request(draft, turn.words, turn.second_input)


def _request_deferred_run(draft: Draft) -> None:
    """Request the run that was deferred to the end of a turn in which no word was heard and none is pending (R4.1)."""
    if draft.runs.owed_to_turn:
        draft.runs = replace(draft.runs, owed_to_turn=False)
        runs.request_by_rule(draft)


def _write_and_request(draft: Draft, words: Text | None, second_input: SecondInput | None) -> None:
    """Write these words of the user and request the run that answers them. While the conversation is busy they are a
    second input, which may interrupt or be held (R7)."""
    action = inputs.action(draft, second_input)
    inputs.noted(draft)
    if action == "coalesce":
        inputs.hold(draft, [_message(trimmed(words))])
        return
    if action == "interrupt":
        inputs.interrupt(draft)
    _write(draft, words)
    runs.request_by_rule(draft)


def _write(draft: Draft, words: Text | None) -> None:
    text = trimmed(words)
    if text:
        draft.append_text(_message(text))
        draft.keep_said()


def _message(text: str) -> Mapping[str, str]:
    return {"role": "user", "content": text}
