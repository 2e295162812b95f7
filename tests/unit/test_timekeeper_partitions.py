"""The timekeeper's state of each partition: which ones it may judge, and by which limits."""

import pytest

from frameledger_services.settings import Settings
from frameledger_services.timekeeper.limits import AFTER_OUTAGE_SECONDS, TimeLimits
from frameledger_services.timekeeper.partitions import Partitions

LIMITS = TimeLimits.of(Settings())
STORED = {0: 5, 1: 5, 2: 5}
START = 2_000.0


def running():
    """The partitions of a timekeeper that began long ago."""
    partitions = Partitions()
    partitions.note_ends({}, 0.0)
    return partitions


def look(partitions, now, *, reached=STORED, away=()):
    """One look at the ends, at which everything is stored."""
    partitions.note_stored(reached, now)
    return partitions.note_ends({one: 5 for one in partitions.known if one not in away}, now)


def judged(partitions, now, reached=STORED):
    """The partitions that are judged, and of these the ones of which silence says nothing yet."""
    partitions.note_stored(reached, now)
    found = partitions.judged(LIMITS, now)
    silent_off = {one for limits, some in found.items() if limits.run_silent is None for one in some}
    return {one for some in found.values() for one in some}, silent_off


def test_a_partition_is_judged_once_it_is_stored_up_to_the_end_of_the_look_before():
    partitions = running()
    assert judged(partitions, START) == (set(), set())
    look(partitions, START)
    assert judged(partitions, START + 1, {0: 5, 1: 4, 2: 6}) == ({0, 2}, set())


def test_after_an_outage_everything_has_time_again():
    partitions = running()
    look(partitions, START)
    partitions.note_outage()
    assert judged(partitions, START + 1) == (set(), set())
    look(partitions, START + 10)
    assert judged(partitions, START + 11) == ({0, 1, 2}, {0, 1, 2})
    assert judged(partitions, START + 10 + AFTER_OUTAGE_SECONDS) == ({0, 1, 2}, set())


@pytest.mark.regression("fault 220")
def test_what_was_before_the_timekeeper_began_counts_as_an_outage():
    partitions = Partitions()
    look(partitions, START)
    assert judged(partitions, START + 1) == ({0, 1, 2}, {0, 1, 2})
    look(partitions, START + 2)
    assert judged(partitions, START + AFTER_OUTAGE_SECONDS) == ({0, 1, 2}, set())


@pytest.mark.regression("fault 108")
def test_a_partition_without_a_leader_is_away_alone_and_has_time_when_it_is_back():
    partitions = running()
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
    partitions = running()
    assert look(partitions, START, away=[1]) == {1}
    look(partitions, START + 1)
    assert judged(partitions, START + 2) == ({0, 1, 2}, {1})


@pytest.mark.regression("fault 108")
def test_a_partition_that_loses_its_leader_while_its_effects_are_held_has_time_when_it_is_back():
    partitions = running()
    look(partitions, START)
    held = {0: 5, 2: 5}
    assert look(partitions, START + 1, reached=held, away=[1]) == {1}
    assert judged(partitions, START + 2, held) == ({0, 2}, set())
    look(partitions, START + 3, reached=held)
    assert set(partitions.ends) == {0, 2}
    look(partitions, START + 4)
    assert judged(partitions, START + 5) == ({0, 1, 2}, {1})


@pytest.mark.regression("fault 117")
def test_a_partition_whose_log_is_shorter_than_what_is_stored_is_not_judged():
    """Nobody folds what it has by now, such as the end of a run, nor what the timekeeper would publish."""
    partitions = running()
    longer = {0: 5, 1: 7, 2: 5}
    assert look(partitions, START, reached=longer) == {1}
    assert judged(partitions, START + 1, longer) == ({0, 2}, set())
    look(partitions, START + 1, reached=longer)
    assert judged(partitions, START + 2, longer) == ({0, 2}, set())
    # It is recovered, and read on.
    look(partitions, START + 3)
    assert judged(partitions, START + 4) == ({0, 1, 2}, {1})


@pytest.mark.regression("fault 122")
def test_a_partition_whose_newest_records_are_hidden_is_not_judged_and_not_away():
    partitions = running()
    look(partitions, START)
    partitions.note_stored(STORED, START + 1)
    assert partitions.note_ends(STORED, START + 1, {1}) == set()
    assert judged(partitions, START + 2) == ({0, 2}, set())
    assert partitions.note_ends(STORED, START + 2) == set()
    assert judged(partitions, START + 3) == ({0, 1, 2}, set())


NOBODY = ("run_unclaimed", "call_unserved", "call_unstarted")
"""The rules for what nobody took."""


def applied(partitions, now, partition=1, reached=STORED):
    """Which of these rules are applied to a partition, and whether all others are."""
    partitions.note_stored(reached, now)
    (limits,) = [one for one, some in partitions.judged(LIMITS, now).items() if partition in some]
    on = {name for name in TimeLimits.__slots__ if getattr(limits, name) == getattr(LIMITS, name)}
    return on & set(NOBODY), on | set(NOBODY) == set(TimeLimits.__slots__)


@pytest.mark.regression("fault 110")
def test_what_nobody_took_is_judged_when_it_could_be_taken_for_the_whole_limit():
    partitions = running()
    held = {0: 5, 2: 5}
    look(partitions, START, reached=held)
    released = START + 1_000
    look(partitions, released)
    assert applied(partitions, released + 1, 0) == (set(NOBODY), True)
    for limit, rules in (
        (LIMITS.call_unserved, {"call_unserved"}),
        (LIMITS.run_unclaimed, {"call_unserved", "run_unclaimed"}),
        (LIMITS.call_unstarted, set(NOBODY)),
    ):
        before, _ = applied(partitions, released + limit - 1)
        assert rules - before
        assert applied(partitions, released + limit) == (rules, True)


@pytest.mark.regression("fault 110")
def test_each_time_the_effects_of_a_partition_are_held_the_time_to_take_its_work_begins_anew():
    partitions = running()
    look(partitions, START)
    later = START + 1_000
    assert applied(partitions, later) == (set(NOBODY), True)
    look(partitions, later, reached={0: 5, 2: 5})
    look(partitions, later + 1)
    assert applied(partitions, later + 2) == (set(), True)
    assert applied(partitions, later + 2, 0) == (set(NOBODY), True)


@pytest.mark.regression("fault 110")
def test_a_timekeeper_that_has_just_started_counts_from_then():
    partitions = running()
    look(partitions, START)
    assert applied(partitions, START + 1) == (set(), True)
    assert applied(partitions, START + LIMITS.call_unstarted) == (set(NOBODY), True)


def test_a_partition_whose_effects_are_held_is_not_judged():
    partitions = running()
    look(partitions, START)
    assert judged(partitions, START + 1, {0: 5, 2: 5}) == ({0, 2}, set())
    partitions.note_stored({0: 0, 2: 0}, START + 2)
    partitions.note_ends({0: 0, 1: 0, 2: 0}, START + 2)
    assert judged(partitions, START + 3, {0: 0, 2: 0}) == ({0, 2}, set())
