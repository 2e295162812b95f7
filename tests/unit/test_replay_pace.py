"""The pace of a replay, with a clock that the test moves."""

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from frameledger_services.forks.pace import ReplayPace, time_of
from frameledger_services.store.replays import RecordedFrame

BEGINNING = datetime(2026, 3, 4, 9, 0, tzinfo=UTC)


class Clock:
    """Seconds that pass when somebody sleeps, and as much as playing takes."""

    def __init__(self):
        self.now = 100.0
        self.slept = []

    async def wait(self, seconds):
        self.slept.append(seconds)
        self.now += seconds


def played(clock, pace, offsets, *, taking=0.0):
    """Play frames at these seconds; when each was played, and the silences that were shortened."""
    times, silences = [], []

    async def play():
        for offset in offsets:
            seconds, silence = pace.wait_for(BEGINNING + timedelta(seconds=offset))
            await pace.wait(seconds)
            times.append(clock.now - 100.0)
            silences.append(silence)
            clock.now += taking

    asyncio.run(play())
    return times, silences


@pytest.mark.parametrize(
    ("speed", "expected"), [(1, [0, 0.5, 2, 2]), (2, [0, 0.25, 1, 1]), (0.5, [0, 1, 4, 4]), (0, [0, 0, 0, 0])]
)
def test_gaps_are_divided_by_the_speed(speed, expected):
    clock = Clock()
    times, silences = played(clock, ReplayPace(speed, lambda: clock.now, clock.wait), [0, 0.5, 2, 2])
    assert (times, silences) == (expected, [0, 0, 0, 0])
    assert speed or clock.slept == []


def test_what_playing_takes_does_not_add_up():
    clock = Clock()
    times, _ = played(clock, ReplayPace(1, lambda: clock.now, clock.wait), [0, 1, 2, 3], taking=0.25)
    assert times == [0, 1, 2, 3]


def test_a_long_silence_is_shortened_and_said():
    clock = Clock()
    times, silences = played(clock, ReplayPace(2, lambda: clock.now, clock.wait, longest=3.0), [0, 6, 66, 67])
    assert (times, silences) == ([0, 3, 6, 6.5], [0, 0, 60, 0])


def test_clocks_that_disagree_never_make_it_wait_backwards():
    clock = Clock()
    times, _ = played(clock, ReplayPace(1, lambda: clock.now, clock.wait), [0, 2, 1, 3])
    assert times == [0, 2, 2, 3]


@pytest.mark.parametrize(
    ("seconds_off", "believed"), [(None, False), (0.2, True), (-4, True), (6, False), (-3600, False)]
)
def test_a_publishers_time_counts_if_its_clock_can_be_right(seconds_off, believed):
    produced = None if seconds_off is None else BEGINNING + timedelta(seconds=seconds_off)
    frame = RecordedFrame(1, uuid4(), "LLMRunFrame", "applied", BEGINNING, produced, None, b"{}", None, None)
    assert time_of(frame) == (produced if believed else BEGINNING)
