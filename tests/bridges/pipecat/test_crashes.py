"""Random conversations that end after any of their frames: the repaired messages have each word once."""

import os

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pipecat import version
from pipecat.frames.frames import BotStartedSpeakingFrame, BotStoppedSpeakingFrame, TranscriptionFrame
from pipecat.turns.user_mute.always_user_mute_strategy import AlwaysUserMuteStrategy
from tests.bridges.pipecat.bots import Answer, Bot
from tests.bridges.pipecat.recording import Recording

from frameledger import frames as ours
from frameledger.fold import Conversation, Folding
from frameledger_services.pipecat.mirror import Appended
from frameledger_services.pipecat.repairs import repairs
from frameledger_services.pipecat.unrecorded import Unrecorded

pytestmark = pytest.mark.regression("bridge 27")

SCRIPTS = 200 if os.environ.get("BRIDGE_KILLS") == "all" else 10 if version().startswith("1.8.") else 25

ACTIONS = ["ask", "cut", "late", "dropped", "muted"]


async def act(bot, action, number):
    match action:
        case "ask":
            bot.model.answers[:] = [Answer([f"a{number}", f" b{number}"])]
            await bot.ask(f"q{number}", f"r{number}")
        case "cut":
            bot.model.answers[:] = [Answer([f"a{number}", f" b{number}", " c"], stops_at=2)]
            bot.model.stopped.clear()
            await bot.say(f"q{number}")
            await bot.model.stopped.wait()
            await bot.interrupt()
        case "late":
            await heard(bot, f"late{number}")
        case "dropped":
            # As the strategies MinWords and WakePhrase do, which show it in no frame.
            await heard(bot, f"dropped{number}")
            await bot.user.reset()
        case "muted":
            await bot.queue(BotStartedSpeakingFrame())
            await bot.settle()
            await heard(bot, f"muted{number}")
            await bot.queue(BotStoppedSpeakingFrame())
    await bot.settle()


async def heard(bot, word):
    await bot.queue(TranscriptionFrame(word, "user", "2026-01-01T00:00:00Z", finalized=True))
    await bot.settle()


@settings(max_examples=SCRIPTS)
@given(st.booleans(), st.lists(st.sampled_from(ACTIONS), min_size=1, max_size=6))
@example(False, ["muted", "ask"])
@example(True, ["ask", "muted", "late", "cut", "dropped", "ask"])
def test_after_a_crash_at_any_frame_each_word_is_in_one_message(speaks, actions):
    recording, bot = Recording(), Bot(speaks=speaks)
    bot.user._params.user_mute_strategies.append(AlwaysUserMuteStrategy())

    async def play(bot):
        for number, action in enumerate(actions):
            await act(bot, action, number)

    recording.run(bot, play)
    published = recording.broker.frames
    folding = Folding(Conversation.new("call-1"))
    said, answered = [], []
    for count, frame in enumerate(published, 1):
        folding.step(frame)
        match frame:
            case ours.InterimTranscriptionFrame() | ours.TranslationFrame():
                pass
            case ours.TranscriptionFrame():
                said += [] if frame.text.startswith("muted") else frame.text.split()
            case ours.TextFrame() if frame.append_to_context:
                answered += frame.text.split()
        stored = [dict(one) for one in folding.conversation().messages]
        match frame:
            case ours.LLMMessagesAppendFrame(messages=[{"role": "user"}]) | ours.EndFrame():
                # What was dropped is known now. Until then it could be in the next message.
                said = words(stored, "user")
        restored = [*stored, *added(repairs(stored, published[:count]))]
        assert words(restored, "user") == said, (count, frame)
        assert words(restored, "assistant") == answered, (count, frame)
        # The same from the fewest frames that suffice.
        for start in range(count, -1, -1):
            if Unrecorded.of(published[start:count]).is_complete:
                assert added(repairs(stored, published[start:count])) == restored[len(stored) :], (
                    start,
                    count,
                )
                break


def added(changes):
    return [message for change in changes if isinstance(change, Appended) for message in change.messages]


def words(messages, role):
    return " ".join(one["content"] for one in messages if one["role"] == role).split()
