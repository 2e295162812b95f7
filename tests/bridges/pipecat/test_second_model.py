"""A pipeline with a second LLM, such as a classifier in a branch with a context of its own, or a second provider."""

import asyncio

import pytest
from pipecat.frames.frames import (
    EndFrame,
    ErrorFrame,
    LLMContextFrame,
    LLMUpdateSettingsFrame,
    ManuallySwitchServiceFrame,
    MetricsFrame,
    SystemFrame,
)
from pipecat.metrics.metrics import LLMTokenUsage, LLMUsageMetricsData
from pipecat.pipeline.llm_switcher import LLMSwitcher
from pipecat.pipeline.parallel_pipeline import ParallelPipeline
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import (
    LLMContextAggregatorPair,
    LLMUserAggregatorParams,
)
from pipecat.processors.frame_processor import FrameProcessor
from pipecat.services.settings import LLMSettings
from pipecat.turns.user_turn_strategies import ExternalUserTurnStrategies
from tests.bounds import IN_PROCESS
from tests.bridges.pipecat.bots import Answer, Bot, ScriptedModel, Speaker
from tests.bridges.pipecat.recording import Recording, as_bytes, stored_bytes

from frameledger.fold import Conversation, fold

TASK = {"role": "developer", "content": "Say CONVERSATION or VOICEMAIL."}
SPEAKS = pytest.mark.parametrize("speaks", [False, True], ids=["text", "speech"])

TTSService = type("TTSService", (Speaker,), {})
"""Known as a voice by the name of Pipecat's class."""


class Classifier(ScriptedModel):
    def __init__(self, name="classifier-1"):
        super().__init__([Answer(["CONVERS", "ATION"])])
        self._settings.apply_update(LLMSettings(model=name, system_instruction="Classify.", temperature=0.25))

    async def _answer(self, answer, context):
        usage = LLMTokenUsage(prompt_tokens=700, completion_tokens=3, total_tokens=703)
        data = LLMUsageMetricsData(processor=str(self), model="classifier-1", value=usage)
        await self.push_frame(MetricsFrame(data=[data]))
        await super()._answer(answer, context)
        await self.push_error("The classifier has failed.")


class Sink(FrameProcessor):
    """Ends the branch: nothing of it but what concerns the whole pipeline goes on."""

    async def process_frame(self, frame, direction):
        await super().process_frame(frame, direction)
        if isinstance(frame, SystemFrame | EndFrame) and not isinstance(frame, ErrorFrame):
            await self.push_frame(frame, direction)


class ClassifiedBot(Bot):
    """A bot with a classifier in a branch before it."""

    def __init__(self, speaks=False):
        super().__init__([Answer(["Hello", " there."])])
        self.other = LLMContext([dict(TASK)])
        turns = ExternalUserTurnStrategies(enable_interruptions=False)
        params = LLMUserAggregatorParams(user_turn_strategies=turns)
        user, assistant = LLMContextAggregatorPair(self.other, user_params=params)
        self.classifier = Classifier()
        branch = [user, self.classifier, assistant, Sink()]
        voice = [TTSService()] if speaks else []
        main = [self.user, self.model, *voice, self.assistant, self.last]
        self.pipeline = Pipeline([ParallelPipeline([], branch), *main])
        self.worker = PipelineWorker(self.pipeline, cancel_on_idle_timeout=False, enable_rtvi=False)


async def ask(bot):
    await bot.say("Hi")
    await bot.classifier.until_answered(1)
    await bot.model.until_answered(1)
    await bot.settle()
    await bot.queue(
        LLMUpdateSettingsFrame(delta=LLMSettings(temperature=0.75), service=bot.classifier),
        LLMUpdateSettingsFrame(delta=LLMSettings(temperature=0.5), service=bot.model),
    )
    await bot.settle()


def run(bot, *recordings):
    async def scene():
        for one in recordings:
            bot.worker.add_observer(one.observer)
        async with asyncio.timeout(IN_PROCESS):
            await bot.run(ask)

    asyncio.run(scene())
    return [fold(one.broker.frames, Conversation.new("call-1")) for one in recordings]


@pytest.mark.regression("bridge 33")
@SPEAKS
def test_what_a_model_with_another_context_says_is_not_of_the_conversation(caplog, speaks):
    bot = ClassifiedBot(speaks)
    recording = Recording(context=bot.context)
    (conversation,) = run(bot, recording)
    assert stored_bytes(conversation.messages) == as_bytes(bot.context.messages)
    assert "".join(one.text for one in recording.of("LLMTextFrame")) == "Hello there."
    assert len(recording.of("LLMRunFrame")) == len(recording.of("LLMFullResponseEndFrame")) == 1
    assert [one.model for one in recording.of("LLMFullResponseStartFrame")] == ["script-1"]
    assert not recording.of("ErrorFrame", "pipecat/MetricsFrame")
    settings = conversation.state.terms.settings
    assert (settings["model"], settings["temperature"]) == ("script-1", 0.5)
    assert settings["system_instruction"] == "Be brief."
    assert not caplog.records
    assert recording.observer.lost == {}


@pytest.mark.regression("bridge 33")
@SPEAKS
def test_two_observers_record_a_context_each(caplog, speaks):
    bot = ClassifiedBot(speaks)
    main, other = Recording("call-7", context=bot.context), Recording("call-7-class", context=bot.other)
    found = run(bot, main, other)
    for conversation, context in zip(found, (bot.context, bot.other), strict=True):
        assert stored_bytes(conversation.messages) == as_bytes(context.messages)
    assert "".join(one.text for one in other.of("LLMTextFrame")) == "CONVERSATION"
    assert [one.message for one in other.of("ErrorFrame")] == ["The classifier has failed."]
    assert found[1].state.terms.settings["model"] == "classifier-1"
    assert found[1].state.terms.settings["temperature"] == 0.75
    assert not caplog.records


@pytest.mark.regression("bridge 33")
def test_without_a_choice_the_context_outside_of_branches_is_recorded_and_the_error_names_the_choice(caplog):
    bot, recording = ClassifiedBot(), Recording()
    (conversation,) = run(bot, recording)
    assert stored_bytes(conversation.messages) == as_bytes(bot.context.messages)
    (line,) = caplog.records
    assert "FrameledgerObserver(..., context=)" in line.message


@pytest.mark.regression("bridge 33")
def test_a_chosen_context_that_the_pipeline_does_not_use_is_said(caplog):
    bot, recording = Bot(), Recording(context=LLMContext())
    bot.worker.add_observer(recording.observer)
    asyncio.run(asyncio.wait_for(bot.run(lambda bot: bot.ask("Hi")), IN_PROCESS))
    (said, *_) = caplog.records
    assert "no processor uses the recorded one" in said.message
    assert not recording.of("LLMRunFrame")


@pytest.mark.regression("bridge 33")
def test_a_context_that_no_aggregator_has_is_said_once(caplog):
    recording, bot = Recording(), Bot()

    async def play(bot):
        await bot.ask("Hi")
        for _ in range(2):
            await bot.model.queue_frame(LLMContextFrame(LLMContext([dict(TASK)])))
        await bot.model.until_answered(3)
        await bot.ask("And now?")

    recording.run(bot, play)
    (said,) = [one for one in caplog.records if one.name == "frameledger.pipecat"]
    assert "no aggregator of its pipeline has" in said.message
    assert len(recording.of("LLMRunFrame")) == 2


@pytest.mark.regression("bridge 33")
def test_a_switcher_has_the_settings_of_the_service_that_answers():
    bot, second = Bot(), Classifier("second-1")
    bot.pipeline = Pipeline([bot.user, LLMSwitcher([bot.model, second]), bot.assistant, bot.last])
    bot.worker = PipelineWorker(bot.pipeline, cancel_on_idle_timeout=False, enable_rtvi=False)
    recording = Recording()

    async def play(bot):
        await bot.ask("Hi")
        await bot.queue(ManuallySwitchServiceFrame(service=second))
        await bot.settle()
        await bot.say("And you?")
        await second.until_answered(1)
        await bot.settle()
        await bot.queue(ManuallySwitchServiceFrame(service=bot.model))
        await bot.settle()
        await bot.ask("Back?")

    settings = recording.run(bot, play).state.terms.settings
    models = [one.model for one in recording.of("LLMFullResponseStartFrame")]
    assert models == ["script-1", "second-1", "script-1"]
    assert (settings["model"], settings["system_instruction"]) == ("script-1", "Be brief.")
    assert "temperature" not in settings
