"""The emptied positions of an era, in bounded memory (RA5.rewrite).

Messages may be retracted anywhere, so a list of emptied positions would grow with the conversation. Ranges of adjacent
positions are kept instead. Beyond `GAPS_REMEMBERED` ranges the lowest one joins the fixed part of the history, for
which the state no longer knows which positions have messages.
"""

from __future__ import annotations

from bisect import bisect_left

from frameledger.evolve.outcome import Reason
from frameledger.evolve.state import MessageCursor
from frameledger.ids import Position
from frameledger.values import replace

GAPS_REMEMBERED = 256


def refusal(place: MessageCursor, position: int) -> Reason | None:
    """Returns why the message at this position cannot be rewritten, or None if it can."""
    if position >= place.next_position or _is_within(place.gaps, position):
        return "no_such_position"
    if place.fixed is not None and place.fixed[0] <= position <= place.fixed[1]:
        return "position_fixed"
    return None


def emptied(place: MessageCursor, position: Position) -> MessageCursor:
    """Returns the cursor after the message at this position, which exists, was removed."""
    if place.fixed is not None and place.fixed[0] <= position <= place.fixed[1]:
        return place
    first = last = position
    at = bisect_left(place.gaps, (position, position))
    before, behind = place.gaps[:at], place.gaps[at:]
    if before and before[-1][1] == position - 1:
        first, before = before[-1][0], before[:-1]
    if behind and behind[0][0] == position + 1:
        last, behind = behind[0][1], behind[1:]
    gaps, fixed = (*before, (first, last), *behind), place.fixed
    if len(gaps) > GAPS_REMEMBERED:
        lowest, *rest = gaps
        gaps = tuple(rest)
        fixed = lowest if fixed is None else (min(fixed[0], lowest[0]), max(fixed[1], lowest[1]))
    return replace(place, gaps=gaps, fixed=fixed)


def _is_within(gaps: tuple[tuple[Position, Position], ...], position: int) -> bool:
    at = bisect_left(gaps, position, key=lambda gap: gap[1])
    return at < len(gaps) and gaps[at][0] <= position
