"""Words and turns: what the user says, and when it is written and answered (R1)."""

from __future__ import annotations

from frameledger.evolve import runs
from frameledger.evolve.draft import Draft
from frameledger.evolve.outcome import Reason
from frameledger.evolve.state import Turn
from frameledger.evolve.text import Text, plus, trimmed
from frameledger.frames import (
    InterimTranscriptionFrame,
    TranscriptionFrame,
    UserStoppedSpeakingFrame,
)
from frameledger.values import replace


def started(draft: Draft) -> Reason | None:
    """Open a turn; a turn that still waits is closed first with the words there are (R1.1, R1.5)."""
    turn = draft.turn
    if turn is not None:
        if turn.speaking:
            return None
        _close(draft, turn)
    draft.turn = Turn(draft.version)
    return None


def stopped(draft: Draft, frame: UserStoppedSpeakingFrame) -> Reason | None:
    """Close the turn, unless its final words are still to come; a second stop closes it anyway (R1.2)."""
    turn = draft.turn
    if turn is None:
        return "target_over" if frame.opened_version is not None else "no_open_turn"
    if frame.opened_version is not None and frame.opened_version != turn.opened_version:
        return "target_over"
    words_are_complete = turn.words is not None and not turn.interim_pending
    if words_are_complete or not turn.speaking:
        _close(draft, turn)
        _pay_turn_debt(draft)
        return None
    draft.turn = replace(turn, speaking=False, stopped_version=draft.version)
    if not turn.interim_pending:
        _pay_turn_debt(draft)
    return None


def transcribed(draft: Draft, frame: TranscriptionFrame) -> Reason | None:
    """Final words: of the open turn, or a turn of their own (R1.1, R1.2, R1.4)."""
    if not frame.text.strip():
        return "nothing_said"
    turn = draft.turn
    if turn is None:
        _write(draft, plus(None, frame.text, frame.includes_inter_frame_spaces))
        runs.request(draft)
        return None
    words = plus(turn.words, frame.text, frame.includes_inter_frame_spaces)
    heard = Turn(
        turn.opened_version,
        turn.speaking,
        words,
        interim_pending=False,
        stopped_version=turn.stopped_version,
    )
    draft.turn = heard
    if not heard.speaking:
        _close(draft, heard)
    return None


def interim(draft: Draft, frame: InterimTranscriptionFrame) -> Reason | None:
    """Interim words only say that final ones are on their way (R1.1)."""
    if not frame.text.strip():
        return "nothing_said"
    if draft.turn is None:
        return "no_open_turn"
    if not draft.turn.interim_pending:
        draft.turn = replace(draft.turn, interim_pending=True)
    return None


def end(draft: Draft) -> None:
    """The context ends: write what was heard, ask for nothing (R1.6)."""
    if draft.turn is not None:
        _write(draft, draft.turn.words)
        draft.turn = None


def _close(draft: Draft, turn: Turn) -> None:
    """Write the turn's words and request the run that answers them, the deferred one with it. Without words there is
    nothing to write, and a deferred run stays so."""
    draft.turn = None
    if _write(draft, turn.words):
        if draft.runs.owed_to_turn:
            draft.runs = replace(draft.runs, owed_to_turn=False)
        runs.request(draft)


def _pay_turn_debt(draft: Draft) -> None:
    """No word was heard and none is pending: the stop itself requests the deferred run (R4.1)."""
    if draft.runs.owed_to_turn:
        draft.runs = replace(draft.runs, owed_to_turn=False)
        runs.request(draft)


def _write(draft: Draft, words: Text | None) -> bool:
    said = trimmed(words)
    if not said:
        return False
    draft.append({"role": "user", "content": said})
    if draft.speech.said is not None:
        draft.speech = replace(draft.speech, said=None)
    return True
