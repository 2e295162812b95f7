"""The rows of heads in `contexts`: what a batch writes of each conversation that it changed.

Most frames are a piece of text, and change only `_WITH_EACH_FRAME`. The other columns are written when one of them has
changed, and the state is written now and then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import Any

import orjson

from frameledger import stored
from frameledger.evolve.state import State
from frameledger.ids import ContextId
from frameledger_services.projector.head import Head, open_text
from frameledger_services.store import batch as statements
from frameledger_services.store import heads, tables
from frameledger_services.store.batch import Insert, Update

STATE_EVERY_FRAMES = 16
"""Frames after which a state is stored again. Later ones are folded again when the head is loaded. Storing the state
with every batch took a tenth of the time of a small batch."""

SMALL_TEXT = 4_096
"""A state with more characters of open text is stored when the text has doubled, and after one frame per
`CHARACTERS_PER_FRAME` of them. This bounds both the cost of a frame and the number of frames that are folded again."""

CHARACTERS_PER_FRAME = 64

UNSAVED_BYTES = 64 * 1024
"""A state is also stored when the frames since then have this many bytes, as with images, or as many as the stored
state. A batch may load thousands of heads, and the frames of all of them at once."""

_KEY = ("context_id", "rebuilt")
"""With another `rebuilt` in the table there is no such row."""

_WITH_EACH_FRAME = ("version", "last_at", "chain")
"""Attributes of a head that every frame changes."""

_SELDOM = tuple(column for column in heads.ATTRIBUTES if column not in _WITH_EACH_FRAME)

_key_of = attrgetter(*_KEY)
_with_each_frame_of = attrgetter(*(heads.ATTRIBUTES[column] for column in _WITH_EACH_FRAME))
_seldom_of = attrgetter(*(heads.ATTRIBUTES[column] for column in _SELDOM))


def head_writes(changed: Iterable[Head]) -> Iterator[Insert | Update]:
    """Yields the writes of these heads. They have to be committed, or the heads dropped: they count as written."""
    new: list[Head] = []
    known: list[Head] = []
    for head in changed:
        (known if head.stored else new).append(head)
    if new:
        yield statements.insert_of(tables.contexts, _rows(new)[0])
    if known:
        rows, are_brief = _rows(known)
        yield Update(tables.contexts, _KEY, rows, usual=_BRIEF if are_brief else _WHOLE)


def state_columns(state: State) -> dict[str, Any]:
    """The columns of `contexts` that are written from the state and not read again."""
    turn, run = state.turn, state.runs.open
    return {
        "era": state.place.era,
        "recording": state.terms.recording,
        "ended": state.terms.ended,
        "open_run_id": None if run is None else run.run_id,
        "turn_opened_version": None if turn is None else turn.opened_version,
        "turn_waits": None if turn is None else not turn.speaking,
        "bot_since_version": state.speech.bot_since,
    }


_BRIEF = frozenset(_WITH_EACH_FRAME)
_WHOLE = frozenset({*heads.ATTRIBUTES, *state_columns(State(ContextId("")))})


def _rows(changed: list[Head]) -> tuple[list[dict[str, Any]], bool]:
    """Returns the rows, and whether they are brief: all of them or none, since they have one statement."""
    pairs = [(head, _seldom_columns(head)) for head in changed]
    are_brief = all(head.written == tuple(seldom.values()) for head, seldom in pairs)
    return [_row(head, {} if are_brief else seldom) for head, seldom in pairs], are_brief


def _seldom_columns(head: Head) -> dict[str, Any]:
    columns = dict(zip(_SELDOM, _seldom_of(head), strict=True))
    if head.parked_version is None or not head.stored:
        # These do not change while it is parked, and a head that could not be brought up to date has old values.
        columns |= state_columns(head.state)
    return columns


def _row(head: Head, seldom: dict[str, Any]) -> dict[str, Any]:
    state = head.state
    row: dict[str, Any] = dict(
        zip(_KEY + _WITH_EACH_FRAME, _key_of(head) + _with_each_frame_of(head), strict=True)
    )
    if seldom:
        row |= seldom
        head.written = tuple(seldom.values())
    if head.parked_at is not None:
        # Only if it was parked since it was loaded.
        row |= {
            "parked_version": head.parked_version,
            "parked_at": head.parked_at,
            "parked_error": head.parked_error,
        }
    if head.origin is not None:
        row["origin"], head.origin = head.origin, None
    if head.experiment is not None:
        row["experiment"], head.experiment = head.experiment, None
    text = open_text(state)
    if _is_due(head, text):
        dumped = stored.dump(state)
        head.saved_text, head.saved_version, head.state_bytes = text, int(state.version), len(dumped)
        head.unsaved_bytes = 0
        row |= {
            "state_version": state.version,
            "fold_version": stored.FOLD_VERSION,
            "state": dumped,
        }
        if head.folded_by is not None:
            row["folded_by"] = orjson.dumps(head.folded_by)
    return row


def _is_due(head: Head, text: int) -> bool:
    """Whether the state is due to be stored again, given the length of its open text."""
    if head.saved_version is None or head.unsaved_bytes >= max(UNSAVED_BYTES, head.state_bytes):
        return True
    frames = head.state.version - head.saved_version
    if text <= SMALL_TEXT:
        return head.saved_text > SMALL_TEXT or frames >= STATE_EVERY_FRAMES
    return text >= 2 * head.saved_text or text < head.saved_text or frames >= text // CHARACTERS_PER_FRAME
