"""The frames that settle overdue work: equal bytes for the same row, another id for another version."""

from dataclasses import replace
from uuid import UUID

import pytest

from frameledger.frames import encode_frame
from frameledger_services.claims.overdue_calls import OverdueCall
from frameledger_services.claims.overdue_runs import OverdueRun
from frameledger_services.claims.timekeeper_claims import HeldCall
from frameledger_services.settings import Settings
from frameledger_services.store.overdue import OverdueSpeech, OverdueTurn
from frameledger_services.timekeeper import settling
from frameledger_services.timekeeper.limits import TimeLimits

CAUSE = UUID(int=3)
RUN = OverdueRun("ctx", 7, "run", 2, CAUSE)
CALL = OverdueCall(
    *("ctx", 7, 3, "call", "pay", "running"), safe=False, interrupted=False, causation_id=CAUSE
)
WAITING = replace(CALL, function_name="approve", status="waiting")
TURN = OverdueTurn("ctx", 7, 3, 5, waits=True, causation_id=CAUSE)
SPEECH = OverdueSpeech("ctx", 7, 3, CAUSE)
HELD = HeldCall(
    *("effect", "ctx", 7, 3, "call", "pay", {"sum": 1}, None, 2, "claim", "dispatched"),
    ours=False,
    safe=False,
    interrupted=False,
    served=False,
    causation_id=CAUSE,
)


def by_us(call):
    return settling.held_call(call, "us")


OF_A_VERSION = [
    (settling.run_unclaimed, RUN),
    (settling.run_silent, RUN),
    (settling.call_overdue, CALL),
    (settling.call_abandoned, CALL),
    (settling.call_overdue, replace(CALL, safe=True)),
    (settling.waiting_overdue, WAITING),
    (settling.call_left, WAITING),
    (settling.turn_overdue, TURN),
    (settling.bot_overdue, SPEECH),
]
OF_AN_ATTEMPT = [(by_us, HELD), (by_us, replace(HELD, status="running", ours=True))]


@pytest.mark.parametrize(("settle", "row"), OF_A_VERSION + OF_AN_ATTEMPT)
def test_the_same_row_gives_the_same_bytes(settle, row):
    assert encode_frame(settle(row).frame) == encode_frame(settle(replace(row)).frame)


@pytest.mark.regression("worker 56")
@pytest.mark.parametrize(("settle", "row"), [(settling.call_overdue, CALL), (by_us, OF_AN_ATTEMPT[1][1])])
def test_what_settles_a_call_is_small_however_long_its_name_is(settle, row):
    named = replace(row, function_name="f" * 100_000)
    assert len(encode_frame(settle(named).frame)) < 10_000


@pytest.mark.parametrize(("settle", "row"), OF_A_VERSION + OF_AN_ATTEMPT)
def test_the_cause_of_a_settlement_is_what_opened_what_it_settles(settle, row):
    assert settle(row).causation_id == CAUSE


@pytest.mark.parametrize(("settle", "row"), OF_A_VERSION)
def test_a_row_of_another_version_or_context_gives_another_id(settle, row):
    others = [replace(row, version=8), replace(row, context_id="other")]
    assert len({settle(one).frame.id for one in (row, *others)}) == 3


@pytest.mark.parametrize(("settle", "row"), OF_AN_ATTEMPT)
def test_the_frames_of_an_attempt_are_the_same_at_every_version_and_no_other_attempts(settle, row):
    assert settle(replace(row, version=8)) == settle(row)
    assert settle(replace(row, call_attempt=3)).frame.id != settle(row).frame.id


def test_a_start_in_name_only_lets_no_other_attempt_follow():
    # The fold keeps its word for the whole call, and the function may be one that must not run twice.
    assert by_us(HELD).frame.safe_to_retry is False


def test_no_two_rules_share_an_id():
    rules = [settle(row) for settle, row in OF_A_VERSION + OF_AN_ATTEMPT]
    rules.append(by_us(replace(HELD, status="running", ours=True, served=True)))
    rules.append(settling.turn_overdue(replace(TURN, waits=False)))
    # An overdue call has one end, whatever that is.
    assert len({one.frame.id for one in rules}) == len(rules) - 1


def test_a_missing_stop_is_one_however_far_the_context_has_come():
    speaking = replace(TURN, waits=False)
    assert settling.turn_overdue(replace(speaking, version=9)) == settling.turn_overdue(speaking)
    later = settling.turn_overdue(replace(speaking, heard_version=6))
    assert later.frame.id != settling.turn_overdue(speaking).frame.id


def test_a_run_that_never_started_is_ended_as_its_first_attempt():
    assert settling.run_unclaimed(replace(RUN, attempt=0)).frame.attempt == 1
    assert settling.run_silent(RUN).frame.attempt == 2


def test_of_a_frame_that_ends_a_call_the_name_is_for_people_and_the_version_names_it():
    for one in (
        settling.call_overdue(CALL),
        settling.waiting_overdue(WAITING),
        settling.call_left(WAITING),
    ):
        assert (one.frame.tool_call_id, one.frame.opened_version) == ("call", 3)


@pytest.mark.parametrize("interrupted", [False, True])
def test_what_was_interrupted_asks_for_nothing(interrupted):
    unsafe = settling.call_overdue(replace(CALL, interrupted=interrupted)).frame
    safe = settling.call_overdue(replace(CALL, safe=True, interrupted=interrupted)).frame
    assert (unsafe.run_llm, safe.run_llm) == ((False, False) if interrupted else (None, True))


def test_a_limit_of_zero_switches_its_rule_off():
    fields = [
        name
        for name, field in Settings.model_fields.items()
        if name.startswith("timekeeper_") and field.annotation is float
    ]
    zeros = {
        name: 0 for name in fields if name not in ("timekeeper_every_secs", "timekeeper_call_grace_secs")
    }
    off = TimeLimits.of(Settings(timekeeper_waiting_calls=False, timekeeper_call_grace_secs=1, **zeros))
    assert off == TimeLimits(
        None, None, None, 1, None, None, None, None, False, None, None, None, None, None, None
    )
    assert None not in {getattr(TimeLimits.of(Settings()), name) for name in TimeLimits.__slots__}


def test_after_an_outage_rules_that_judge_by_the_log_wait_for_their_limit_and_a_minute_at_most():
    limits = TimeLimits.of(Settings())
    assert limits.after_outage(float("inf")) == limits.after_outage(60.0) == limits
    early = limits.after_outage(30.0)
    on = {name for name in TimeLimits.__slots__ if getattr(early, name) == getattr(limits, name)}
    assert set(TimeLimits.__slots__) - on == {
        *("run_unclaimed", "run_silent", "call", "call_unstarted", "user_silent", "bot_silent")
    }
    assert (early.final_words, early.call_unserved) == (5.0, 30.0)
