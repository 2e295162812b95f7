"""Text and speech conversations: at each sync point the recorded conversation equals Pipecat's context."""

import asyncio

import pytest
from pipecat.audio.dtmf.types import KeypadEntry
from pipecat.frames.frames import (
    FunctionCallResultProperties,
    InterruptionFrame,
    LLMConfigureOutputFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMMessagesAppendFrame,
    LLMTextFrame,
    LLMUpdateSettingsFrame,
    MetricsFrame,
    OutputDTMFFrame,
    UserStartedSpeakingFrame,
    UserStoppedSpeakingFrame,
)
from pipecat.metrics.metrics import LLMTokenUsage, LLMUsageMetricsData
from pipecat.processors.frame_processor import FrameProcessor
from pipecat.services.settings import LLMSettings
from pipecat.turns.user_mute.base_user_mute_strategy import BaseUserMuteStrategy
from tests.bridges.pipecat.bots import Answer, Bot, Speaker
from tests.bridges.pipecat.recording import Recording

from frameledger.fold import Conversation, Folding

SPEAKS = pytest.mark.parametrize("speaks", [False, True], ids=["text", "speech"])


@SPEAKS
def test_two_turns_are_two_questions_and_two_answers(speaks):
    recording, bot = (
        Recording(),
        Bot([Answer(["Yes", ", at", " nine."]), Answer(["Platform", " two."])], speaks),
    )

    async def play(bot):
        await bot.ask("Is there a night train?")
        await bot.ask("Which", "platform?")

    conversation = recording.run(bot, play)
    assert [one["role"] for one in conversation.messages] == ["user", "assistant"] * 2
    assert conversation.messages[2]["content"] == "Which platform?"
    assert len(recording.of("LLMRunFrame")) == 2
    start = recording.of("LLMFullResponseStartFrame")[0]
    assert (start.provider, start.model) == ("scriptedmodel", "script-1")
    assert conversation.state.terms.settings["system_instruction"] == "Be brief."
    assert conversation.state.terms.ended


@pytest.mark.regression("bridge 48")
@SPEAKS
def test_an_answer_has_the_model_and_the_instruction_of_its_time(speaks):
    recording, bot = Recording(), Bot(speaks=speaks)

    async def play(bot):
        await bot.ask("Is there a night train?")
        await bot.queue(LLMUpdateSettingsFrame(delta=LLMSettings(model="script-2")))
        await bot.ask("And tomorrow?")
        bot.model.append_system_instruction("Answer in French.")
        await bot.ask("Thanks.")

    settings = recording.run(bot, play).state.terms.settings
    starts = [(one.provider, one.model) for one in recording.of("LLMFullResponseStartFrame")]
    assert starts == [("scriptedmodel", f"script-{number}") for number in (1, 2, 2)]
    assert settings["model"] == "script-2"
    assert settings["system_instruction"] == "Be brief.\n\nAnswer in French."
    # Those of the first request, and what was changed before each other one.
    changes = [dict(one.settings) for one in recording.of("LLMUpdateSettingsFrame")]
    assert [list(one) for one in changes[1:]] == [["model"], ["system_instruction"]]


@SPEAKS
def test_an_answer_that_is_cut_short_keeps_what_was_said(speaks):
    recording = Recording()
    bot = Bot([Answer(["One", " two", " three", " four"], stops_at=None if speaks else 2)], speaks)
    bot.speaker.stops_after = 2

    async def play(bot):
        await bot.say("Count.")
        await (bot.speaker if speaks else bot.model).stopped.wait()
        await bot.until_heard(2)
        await bot.interrupt()
        await bot.ask("Thanks.")

    conversation = recording.run(bot, play)
    assert conversation.messages[1] == {"role": "assistant", "content": "One two"}
    if speaks:
        words = [one.text for one in recording.of("LLMTextFrame") if not one.append_to_context]
        assert "".join(words).startswith("One two three")


@SPEAKS
def test_a_call_is_followed_and_its_messages_are_pipecats(speaks):
    recording = Recording()
    bot = Bot(
        [Answer(["Let me see."], [("weather", "call-1", {"city": "Brindle"})]), Answer(["Rain."])], speaks
    )

    async def weather(params):
        await params.result_callback({"sky": "rain"})

    bot.model.register_function("weather", weather)

    async def play(bot):
        await bot.say("What is the weather?")
        await bot.model.until_answered(2)
        await bot.settle()

    conversation = recording.run(bot, play)
    assert {"role": "tool", "content": '{"sky": "rain"}', "tool_call_id": "call-1"} in conversation.messages
    (result,) = recording.of("FunctionCallResultFrame")
    assert result.result == {"sky": "rain"}
    assert len(recording.of("LLMMessageRewriteFrame")) == 1


@pytest.mark.parametrize("deferred", [False, True])
def test_a_call_in_the_background_is_told_where_pipecat_tells_it(deferred):
    recording = Recording()
    bot = Bot(
        [Answer(["I look."], [("search", "call-1", {})]), Answer(["Anything else?"]), Answer(["Found."])]
    )
    go_on = asyncio.Event()

    async def search(params):
        await params.result_callback({"part": 1}, properties=FunctionCallResultProperties(is_final=False))
        if deferred:
            await go_on.wait()
        await params.result_callback({"found": 1})

    bot.model.register_function("search", search, cancel_on_interruption=False)

    async def play(bot):
        await bot.say("Search.")
        await bot.model.until_answered(2)
        if deferred:
            await bot.ask("And hurry.")
            go_on.set()
            await bot.model.until_answered(4)
        await bot.settle()

    recording.run(bot, play)
    assert [one.properties is None for one in recording.of("FunctionCallResultFrame")] == [False, True]


class TTSService(Speaker):
    """Known as a voice by the name of Pipecat's class. Pushes on what it is not to speak, as Pipecat 1.8 does."""

    async def process_frame(self, frame, direction):
        if isinstance(frame, LLMTextFrame) and frame.skip_tts:
            await FrameProcessor.process_frame(self, frame, direction)
            await self.push_frame(frame, direction)
        else:
            await super().process_frame(frame, direction)


@pytest.mark.regression("bridge 37")
def test_text_that_no_voice_speaks_is_recorded_as_the_aggregator_gets_it():
    recording = Recording()
    answers = [Answer(["One", " two"]), Answer(["Three", " four"])]
    bot = Bot(answers, speaks=True, voice=TTSService())

    async def play(bot):
        await bot.ask("Count.")
        await bot.queue(LLMConfigureOutputFrame(skip_tts=True))
        await bot.settle()
        await bot.ask("Go on in writing.")

    recording.run(bot, play)
    # On a busy machine tokens wait, and share a frame.
    texts = {False: "", True: ""}
    for one in recording.of("LLMTextFrame"):
        texts[one.append_to_context] += one.text
    assert texts == {False: "One two", True: "Three four"}


class MutedOnceAsked(BaseUserMuteStrategy):
    is_muted = False

    async def process_frame(self, frame):
        return self.is_muted


@pytest.mark.regression("bridge 45")
@SPEAKS
def test_what_a_muted_user_does_interrupts_no_recorded_answer(speaks):
    recording, mute = Recording(), MutedOnceAsked()
    bot = Bot(speaks=speaks, mutes=[mute])
    told = UserStartedSpeakingFrame, InterruptionFrame, UserStoppedSpeakingFrame
    names = [one.__name__ for one in told]

    async def play(bot):
        await bot.queue(*(one() for one in told))
        await bot.settle()
        mute.is_muted = True
        await bot.settle()
        await bot.model.push_frame(LLMFullResponseStartFrame())
        await bot.model.push_frame(LLMTextFrame("Welcome"))
        await bot.queue(*(one() for one in told))
        await bot.settle()
        await bot.model.push_frame(LLMTextFrame(" to you."))
        await bot.model.push_frame(LLMFullResponseEndFrame())
        await bot.settle()

    conversation = recording.run(bot, play)
    assert [one["content"] for one in conversation.messages] == ["Welcome to you."]
    assert sorted(one.type for one in recording.of(*names)) == sorted(names)
    folding = Folding(Conversation.new("call-1"))
    ignored = [one.type for one in recording.broker.frames if folding.step(one).outcome == "ignored"]
    assert ignored == []


def test_a_thought_with_a_signature_of_bytes_is_kept():
    recording, bot = Recording(), Bot([Answer(["Yes."], thought="Hm.", signature=b"\x00\xff")])
    conversation = recording.run(bot, lambda bot: bot.ask("Are you sure?"))
    (thought,) = [one for one in conversation.messages if one.get("llm") == "script"]
    assert thought["message"]["signature"] == {"$bytes": "AP8="}


def test_the_end_of_an_answer_says_what_it_used():
    usage = LLMTokenUsage(prompt_tokens=7, completion_tokens=3, total_tokens=10)

    recording, bot = Recording(), Bot([Answer(["Yes."])])
    answer = bot.model._answer

    async def answered(*words):
        await answer(*words)
        await bot.model.push_frame(
            MetricsFrame(data=[LLMUsageMetricsData(processor="llm", model="script-1", value=usage)])
        )

    vars(bot.model)["_answer"] = answered
    recording.run(bot, lambda bot: bot.ask("Hi"))
    (end,) = recording.of("LLMFullResponseEndFrame")
    assert (end.usage.input_tokens, end.usage.output_tokens) == (7, 3)


@pytest.mark.regression("bridge 49")
def test_the_keys_that_a_bot_dials_are_recorded():
    recording = Recording()
    dialled = OutputDTMFFrame(buttons=[KeypadEntry("1"), KeypadEntry("#")])
    recording.run(Bot(), lambda bot: bot.queue(dialled))
    (one,) = recording.of("pipecat/OutputDTMFFrame")
    assert one.model_extra["buttons"] == ["1", "#"]


def test_messages_that_the_application_sends_are_there_and_ask_once():
    recording, bot = Recording(), Bot([Answer(["Good day."])])

    async def play(bot):
        message = {"role": "developer", "content": "Greet the caller."}
        await bot.queue(LLMMessagesAppendFrame(messages=[message], run_llm=True))
        await bot.model.until_answered(1)
        await bot.settle()

    conversation = recording.run(bot, play)
    assert [one["role"] for one in conversation.messages] == ["developer", "assistant"]
    assert len(recording.of("LLMRunFrame")) == 1
