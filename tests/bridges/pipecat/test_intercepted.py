"""Frames are captured where processors are given them, or by Pipecat's events where their methods cannot be wrapped."""

import pytest
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from tests.bridges.pipecat.bots import Answer, Bot, ScriptedModel
from tests.bridges.pipecat.recording import Recording

from frameledger_services.pipecat import intercepted

CALLS = ["FunctionCallsStartedFrame", "FunctionCallInProgressFrame", "FunctionCallResultFrame"]


class Passes(FrameProcessor):
    async def process_frame(self, frame, direction):
        await super().process_frame(frame, direction)
        await self.push_frame(frame, direction)


class TakesMore(Passes):
    """A processor of a later Pipecat, whose methods have another parameter."""

    async def queue_frame(self, frame, direction=FrameDirection.DOWNSTREAM, callback=None, priority=0):
        await super().queue_frame(frame, direction, callback)


class TakesItsCallbackByName(Passes):
    """A processor of a program, which Pipecat never gives a callback."""

    async def queue_frame(self, frame, direction=FrameDirection.DOWNSTREAM, *, callback=None):
        await super().queue_frame(frame, direction, callback)


class LetsNothingBeReplaced(Passes):
    def __setattr__(self, name, value):
        if name == "queue_frame":
            raise AttributeError(name)
        super().__setattr__(name, value)


def weather_bot(model=None, **options):
    answers = [Answer(["Let me see."], [("weather", "call-1", {})]), Answer(["Rain."])]
    bot = Bot(service=(model or ScriptedModel)(answers), **options)

    async def weather(params):
        await params.result_callback({"sky": "rain"})

    bot.model.register_function("weather", weather)
    return bot


async def ask(bot):
    await bot.say("What is the weather?")
    await bot.model.until_answered(2)
    await bot.settle()


def told(recording):
    return [one.type for one in recording.broker.frames if not one.type.startswith("LLMMessage")]


@pytest.mark.parametrize("speaks", [False, True], ids=["text", "speech"])
@pytest.mark.parametrize(
    "neighbour",
    [
        TakesMore,
        pytest.param(TakesItsCallbackByName, marks=pytest.mark.regression("bridge 10")),
        LetsNothingBeReplaced,
    ],
)
def test_the_events_are_used_where_a_method_cannot_be_wrapped(neighbour, speaks):
    plain, held = Recording(), Recording()
    plain.run(weather_bot(speaks=speaks, extra=[Passes()]), ask)
    bot = weather_bot(speaks=speaks, extra=[neighbour()])
    held.run(bot, ask)
    assert bot.model._event_handlers["on_before_push_frame"].handlers
    assert sorted(told(held)) == sorted(told(plain))
    assert [one.type for one in held.of(*CALLS)] == CALLS


def test_a_recording_by_events_alone_is_the_same(monkeypatch):
    def refuse(*_):
        raise TypeError("these arguments are others")

    plain, by_events = Recording(), Recording()
    plain.run(weather_bot(speaks=True), ask)
    monkeypatch.setattr(intercepted, "_check", refuse)
    by_events.run(weather_bot(speaks=True), ask)
    assert told(by_events) == told(plain)


def test_a_frame_that_the_model_keeps_for_itself_is_not_recorded():
    class Discreet(ScriptedModel):
        """Pushes less than it is told to push, as a service does that answers before the turn is over."""

        async def push_frame(self, frame, direction=FrameDirection.DOWNSTREAM):
            if getattr(frame, "text", None) != " secret":
                await super().push_frame(frame, direction)

    recording = Recording()
    bot = Bot(service=Discreet([Answer(["One", " secret", " two"])]), speaks=True)
    recording.run(bot, lambda bot: bot.ask("Say it."))
    assert "".join(one.text for one in recording.of("LLMTextFrame")) == "One two"
