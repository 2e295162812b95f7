"""What the timekeeper knows of each partition: which it may judge, and by which limits."""

import pytest

from frameledger_services.settings import Settings
from frameledger_services.timekeeper.limits import AFTER_OUTAGE_SECONDS, TimeLimits
from frameledger_services.timekeeper.partitions import Partitions

LIMITS = TimeLimits.of(Settings())
STORED = {0: 5, 1: 5, 2: 5}
START = 1_000.0


def look(partitions, now, *, reached=STORED, away=()):
    """One look at the ends, at which everything is stored."""
    asked = partitions.to_ask(reached)
    return partitions.looked(reached, {one: 5 for one in asked if one not in away}, now)


def judged(partitions, now, reached=STORED):
    """The partitions that are judged, and of these the ones of which silence says nothing yet."""
    found = partitions.judged(reached, LIMITS, now)
    silent_off = {one for limits, some in found.items() if limits.run_silent is None for one in some}
    return {one for some in found.values() for one in some}, silent_off


def test_a_partition_is_judged_once_it_is_stored_up_to_the_end_of_the_look_before():
    partitions = Partitions()
    assert judged(partitions, START) == (set(), set())
    look(partitions, START)
    assert judged(partitions, START + 1, {0: 5, 1: 4, 2: 6}) == ({0, 2}, set())


def test_after_an_outage_everything_has_time_again():
    partitions = Partitions()
    look(partitions, START)
    partitions.outage()
    assert judged(partitions, START + 1) == (set(), set())
    look(partitions, START + 10)
    assert judged(partitions, START + 11) == ({0, 1, 2}, {0, 1, 2})
    assert judged(partitions, START + 10 + AFTER_OUTAGE_SECONDS) == ({0, 1, 2}, set())


@pytest.mark.regression("fault 108")
def test_a_partition_without_a_leader_is_away_alone_and_has_time_when_it_is_back():
    partitions = Partitions()
    assert look(partitions, START) == set()
    assert look(partitions, START + 1, away=[1]) == {1}
    assert look(partitions, START + 2, away=[1]) == set()
    assert judged(partitions, START + 3) == ({0, 2}, set())
    assert look(partitions, START + 10) == set()
    assert judged(partitions, START + 11) == ({0, 1, 2}, {1})
    look(partitions, START + 20)
    assert judged(partitions, START + 10 + AFTER_OUTAGE_SECONDS) == ({0, 1, 2}, set())


@pytest.mark.regression("fault 108")
def test_a_partition_that_was_away_at_the_first_look_has_time_when_it_is_back():
    partitions = Partitions()
    assert look(partitions, START, away=[1]) == {1}
    look(partitions, START + 1)
    assert judged(partitions, START + 2) == ({0, 1, 2}, {1})


@pytest.mark.regression("fault 108")
def test_a_partition_that_loses_its_leader_while_its_effects_are_held_has_time_when_it_is_back():
    partitions = Partitions()
    look(partitions, START)
    held = {0: 5, 2: 5}
    assert look(partitions, START + 1, reached=held, away=[1]) == {1}
    assert judged(partitions, START + 2, held) == ({0, 2}, set())
    look(partitions, START + 3, reached=held)
    assert set(partitions.ends) == {0, 2}
    look(partitions, START + 4)
    assert judged(partitions, START + 5) == ({0, 1, 2}, {1})
