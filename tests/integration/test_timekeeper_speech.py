"""Missing stops: of a user, of the final words of the user's turn, and of the bot."""

import pytest
from tests.support.timekeeping import FAR, PAST, at_desk, limits
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

CTX = "desk"
MINUTE = 60.0
SILENT, FINAL, BOT = limits(user_silent=PAST), limits(final_words=PAST), limits(bot_silent=PAST)


def test_a_user_who_was_not_heard_for_long_has_stopped_and_is_answered(database):
    async def test(desk):
        await desk.say(CTX, speak(), hear("Hello?"))
        assert await desk.settle(limits(user_silent=FAR, final_words=PAST)) == []
        assert await desk.settle(SILENT) == [("user_stop", "applied")]
        assert await desk.open_run(CTX) == 3
        assert await desk.texts(CTX) == ["Hello?"]
        # The user's own stop comes late.
        await desk.say(CTX, stop())
        assert await desk.value("SELECT reason FROM frames WHERE version = 4") == "no_open_turn"

    at_desk(database, test)


@pytest.mark.parametrize("heard", [interim(), hear("well"), speak()])
def test_every_sign_of_the_user_counts_and_what_the_bot_says_does_not(database, heard):
    async def test(desk):
        silent = limits(user_silent=MINUTE)
        await desk.say(CTX, speak(), interim())
        await desk.an_hour_passes(CTX)
        await desk.say(CTX, start(), tokens("Hm"), bot_speaks())
        assert len(await desk.look(silent)) == 1
        await desk.say(CTX, heard)
        assert await desk.look(silent) == []

    at_desk(database, test)


def test_a_turn_whose_final_words_never_come_is_closed_with_the_words_there_are(database):
    async def test(desk):
        await desk.say(CTX, speak(), hear("Hello"), interim("the"), stop())
        assert await desk.open_run(CTX) is None
        assert await desk.settle(limits(final_words=FAR, user_silent=PAST)) == []
        assert await desk.settle(FINAL) == [("final_words", "applied")]
        assert await desk.texts(CTX) == ["Hello"]
        assert await desk.open_run(CTX) == 5
        # Words that come late are a turn of their own.
        await desk.say(CTX, hear("there"))
        assert await desk.texts(CTX) == ["Hello", "there"]

    at_desk(database, test)


def test_final_words_that_come_in_time_close_the_turn_and_the_timekeepers_stop_is_ignored(database):
    async def test(desk):
        await desk.say(CTX, speak(), interim(), stop())
        found = await desk.look(FINAL)
        await desk.say(CTX, hear("Hello"), speak())
        desk.publish(found)
        await desk.project()
        # It names the turn that it was to close, and so not the one that has begun since.
        assert await desk.became(found[0]) == "target_over"
        assert await desk.value("SELECT turn_waits FROM contexts") is False

    at_desk(database, test)


def test_a_turn_in_which_no_word_was_heard_ends_too_and_its_deferred_run_opens(database):
    async def test(desk):
        # An interruption inside the turn drops a run of which nothing was heard. Its successor opens at the turn's end.
        await desk.say(CTX, ask(), speak(), interim(), interrupt(), stop())
        assert await desk.open_run(CTX) is None
        assert await desk.settle(FINAL) == [("final_words", "applied")]
        assert await desk.open_run(CTX) == 6
        assert await desk.value("SELECT turn_opened_version FROM contexts") is None

    at_desk(database, test)


def test_a_turn_without_a_sound_is_not_open_for_ever(database):
    async def test(desk):
        await desk.say(CTX, speak())
        assert await desk.settle(SILENT) == [("user_stop", "applied")]
        assert await desk.settle(SILENT) == []
        assert await desk.settle(FINAL) == [("final_words", "applied")]
        assert await desk.value("SELECT turn_opened_version FROM contexts") is None
        assert await desk.open_run(CTX) is None
        assert await desk.texts(CTX) == []

    at_desk(database, test)


def test_the_bot_that_was_not_heard_for_long_has_stopped_and_deferred_runs_open(database):
    async def test(desk):
        await desk.say(CTX, begin("a"), bot_speaks(), result("a", 1))
        assert await desk.open_run(CTX) is None
        assert await desk.settle(limits(bot_silent=FAR, user_silent=PAST, final_words=PAST)) == []
        assert await desk.settle(BOT) == [("bot_stop", "applied")]
        assert await desk.open_run(CTX) == 4
        assert await desk.settle(BOT) == []

    at_desk(database, test)


def test_a_bot_that_is_heard_speaks_on(database):
    async def test(desk):
        silent = limits(bot_silent=MINUTE)
        run = derived.run_id(ContextId(CTX), 1)
        await desk.say(CTX, ask(), start(run), bot_speaks())
        await desk.an_hour_passes(CTX)
        await desk.say(CTX, hear("Are you there?"))
        assert len(await desk.look(silent)) == 1
        await desk.say(CTX, tokens("Yes", run=run))
        assert await desk.look(silent) == []
        await desk.an_hour_passes(CTX)
        found = await desk.look(silent)
        # The stop names the speech, so it does not end one that has begun since.
        await desk.say(CTX, end(run), bot_stops(), bot_speaks())
        desk.publish(found)
        await desk.project()
        assert await desk.became(found[0]) == "target_over"

    at_desk(database, test)


def test_two_timekeepers_stop_a_speaker_once(database):
    async def test(desk):
        """A second stop would not wait for the final words."""
        await desk.say(CTX, speak(), interim(), bot_speaks())
        every = limits(user_silent=PAST, bot_silent=PAST)
        first = await desk.look(every, who="first")
        await desk.say(CTX, tokens("x"))
        second = await desk.look(every, who="second")
        desk.publish(first)
        desk.publish(second)
        await desk.project()
        assert [await desk.became(one) for one in (*first, *second)] == [
            *("applied", "applied"),
            *("applied", "target_over"),
        ]
        assert first[0] == second[0]
        assert await desk.value("SELECT duplicate_count FROM contexts") == 1
        assert await desk.value("SELECT turn_waits FROM contexts") is True
        await desk.say(CTX, hear("Hello"))
        assert await desk.texts(CTX) == ["Hello"]

    at_desk(database, test)


def test_recordings_and_contexts_that_ended_or_are_parked_are_left_alone(database):
    async def test(desk):
        every = limits(user_silent=PAST, final_words=PAST, bot_silent=PAST)
        await desk.say("recording", context("hi", react=False), speak(), bot_speaks())
        await desk.say("ended", ask(), finish(), bot_speaks())
        await desk.say("parked", speak(), bot_speaks())
        await desk.execute(
            "UPDATE contexts SET parked_version = version + 1, parked_at = now(), parked_error = 'test' "
            "WHERE context_id = 'parked'"
        )
        assert await desk.look(every) == []
        await desk.say("open", speak(), bot_speaks())
        assert len(await desk.look(every)) == 2

    at_desk(database, test)
