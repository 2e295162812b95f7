"""Missing stops: of a user, of the final words of the user's turn, and of the bot."""

import pytest
from tests.support.timekeeping import FAR, PAST, limits, with_harness
from tests.unit.rules.dsl import (
    ask,
    begin,
    bot_speaks,
    bot_stops,
    context,
    end,
    finish,
    hear,
    interim,
    interrupt,
    result,
    speak,
    start,
    stop,
    tokens,
)

from frameledger import derived
from frameledger.ids import ContextId

CTX = "harness"
MINUTE = 60.0
SILENT, FINAL, BOT = limits(user_silent=PAST), limits(final_words=PAST), limits(bot_silent=PAST)


def test_a_user_who_was_not_heard_for_long_has_stopped_and_is_answered(database):
    async def test(harness):
        await harness.say(CTX, speak(), hear("Hello?"))
        assert await harness.settle(limits(user_silent=FAR, final_words=PAST)) == []
        assert await harness.settle(SILENT) == [("user_stop", "applied")]
        assert await harness.open_run(CTX) == 3
        assert await harness.texts(CTX) == ["Hello?"]
        # The user's own stop comes late.
        await harness.say(CTX, stop())
        assert await harness.value("SELECT reason FROM frames WHERE version = 4") == "no_open_turn"

    with_harness(database, test)


@pytest.mark.parametrize("heard", [interim(), hear("well"), speak()])
def test_every_sign_of_the_user_counts_and_what_the_bot_says_does_not(database, heard):
    async def test(harness):
        silent = limits(user_silent=MINUTE)
        await harness.say(CTX, speak(), interim())
        await harness.an_hour_passes(CTX)
        await harness.say(CTX, start(), tokens("Hm"), bot_speaks())
        assert len(await harness.sweep(silent)) == 1
        await harness.say(CTX, heard)
        assert await harness.sweep(silent) == []

    with_harness(database, test)


def test_a_turn_whose_final_words_never_come_is_closed_with_the_words_there_are(database):
    async def test(harness):
        await harness.say(CTX, speak(), hear("Hello"), interim("the"), stop())
        assert await harness.open_run(CTX) is None
        assert await harness.settle(limits(final_words=FAR, user_silent=PAST)) == []
        assert await harness.settle(FINAL) == [("final_words", "applied")]
        assert await harness.texts(CTX) == ["Hello"]
        assert await harness.open_run(CTX) == 5
        # Words that come late are a turn of their own.
        await harness.say(CTX, hear("there"))
        assert await harness.texts(CTX) == ["Hello", "there"]

    with_harness(database, test)


def test_final_words_that_come_in_time_close_the_turn_and_the_timekeepers_stop_is_ignored(database):
    async def test(harness):
        await harness.say(CTX, speak(), interim(), stop())
        found = await harness.sweep(FINAL)
        await harness.say(CTX, hear("Hello"), speak())
        harness.publish(found)
        await harness.project()
        # It names the turn that it was to close, and so not the one that has begun since.
        assert await harness.became(found[0]) == "target_over"
        assert await harness.value("SELECT turn_waits FROM contexts") is False

    with_harness(database, test)


def test_a_turn_in_which_no_word_was_heard_ends_too_and_its_deferred_run_opens(database):
    async def test(harness):
        # An interruption inside the turn drops a run of which nothing was heard. Its successor opens at the turn's end.
        await harness.say(CTX, ask(), speak(), interim(), interrupt(), stop())
        assert await harness.open_run(CTX) is None
        assert await harness.settle(FINAL) == [("final_words", "applied")]
        assert await harness.open_run(CTX) == 6
        assert await harness.value("SELECT turn_opened_version FROM contexts") is None

    with_harness(database, test)


def test_a_turn_without_a_sound_is_not_open_for_ever(database):
    async def test(harness):
        await harness.say(CTX, speak())
        assert await harness.settle(SILENT) == [("user_stop", "applied")]
        assert await harness.settle(SILENT) == []
        assert await harness.settle(FINAL) == [("final_words", "applied")]
        assert await harness.value("SELECT turn_opened_version FROM contexts") is None
        assert await harness.open_run(CTX) is None
        assert await harness.texts(CTX) == []

    with_harness(database, test)


def test_the_bot_that_was_not_heard_for_long_has_stopped_and_deferred_runs_open(database):
    async def test(harness):
        await harness.say(CTX, begin("a"), bot_speaks(), result("a", 1))
        assert await harness.open_run(CTX) is None
        assert await harness.settle(limits(bot_silent=FAR, user_silent=PAST, final_words=PAST)) == []
        assert await harness.settle(BOT) == [("bot_stop", "applied")]
        assert await harness.open_run(CTX) == 4
        assert await harness.settle(BOT) == []

    with_harness(database, test)


def test_a_bot_that_is_heard_speaks_on(database):
    async def test(harness):
        silent = limits(bot_silent=MINUTE)
        run = derived.run_id(ContextId(CTX), 1)
        await harness.say(CTX, ask(), start(run), bot_speaks())
        await harness.an_hour_passes(CTX)
        await harness.say(CTX, hear("Are you there?"))
        assert len(await harness.sweep(silent)) == 1
        await harness.say(CTX, tokens("Yes", run=run))
        assert await harness.sweep(silent) == []
        await harness.an_hour_passes(CTX)
        found = await harness.sweep(silent)
        # The stop names the speech, so it does not end one that has begun since.
        await harness.say(CTX, end(run), bot_stops(), bot_speaks())
        harness.publish(found)
        await harness.project()
        assert await harness.became(found[0]) == "target_over"

    with_harness(database, test)


def test_two_timekeepers_stop_a_speaker_once(database):
    async def test(harness):
        """A second stop would not wait for the final words."""
        await harness.say(CTX, speak(), interim(), bot_speaks())
        every = limits(user_silent=PAST, bot_silent=PAST)
        first = await harness.sweep(every, who="first")
        await harness.say(CTX, tokens("x"))
        second = await harness.sweep(every, who="second")
        harness.publish(first)
        harness.publish(second)
        await harness.project()
        assert [await harness.became(one) for one in (*first, *second)] == [
            *("applied", "applied"),
            *("applied", "target_over"),
        ]
        assert first[0] == second[0]
        assert await harness.value("SELECT duplicate_count FROM contexts") == 1
        assert await harness.value("SELECT turn_waits FROM contexts") is True
        await harness.say(CTX, hear("Hello"))
        assert await harness.texts(CTX) == ["Hello"]

    with_harness(database, test)


def test_recordings_and_contexts_that_ended_or_are_parked_are_left_alone(database):
    async def test(harness):
        every = limits(user_silent=PAST, final_words=PAST, bot_silent=PAST)
        await harness.say("recording", context("hi", react=False), speak(), bot_speaks())
        await harness.say("ended", ask(), finish(), bot_speaks())
        await harness.say("parked", speak(), bot_speaks())
        await harness.execute(
            "UPDATE contexts SET parked_version = version + 1, parked_at = now(), parked_error = 'test' "
            "WHERE context_id = 'parked'"
        )
        assert await harness.sweep(every) == []
        await harness.say("open", speak(), bot_speaks())
        assert len(await harness.sweep(every)) == 2

    with_harness(database, test)
