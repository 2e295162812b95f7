"""Changes of the context by the application are recorded, however it makes them; and a pipeline ends at any point."""

import asyncio

import pytest
from pipecat.adapters.schemas.function_schema import FunctionSchema
from pipecat.adapters.schemas.tools_schema import ToolsSchema
from pipecat.frames.frames import (
    CancelFrame,
    EndFrame,
    LLMMessagesAppendFrame,
    LLMMessagesTransformFrame,
    LLMMessagesUpdateFrame,
    LLMSetToolChoiceFrame,
    LLMSetToolsFrame,
    LLMUpdateSettingsFrame,
    TTSSpeakFrame,
)
from pipecat.processors.aggregators.llm_context import NOT_GIVEN, LLMContext, LLMSpecificMessage
from pipecat.processors.frame_processor import FrameProcessor
from pipecat.services.settings import LLMSettings
from tests.bridges.pipecat.bots import Answer, Bot
from tests.bridges.pipecat.recording import Broker, Recording

from frameledger_services.pipecat import FrameledgerObserver

NOTE = {"role": "developer", "content": "The train is late."}


def test_a_context_that_has_messages_and_tools_begins_with_them():
    tool = FunctionSchema("weather", "Tells the weather.", {"city": {"type": "string"}}, ["city"])
    context = LLMContext([NOTE], ToolsSchema([tool]), "auto")
    recording = Recording()
    conversation = recording.run(Bot([Answer(["Hi."])], context=context), lambda bot: bot.ask("Hi"))
    assert conversation.messages[0] == NOTE
    (known,) = conversation.state.terms.tools
    assert known["function"]["parameters"]["required"] == ["city"]
    assert conversation.state.terms.tool_choice == "auto"


def test_what_a_handler_appends_is_recorded():
    recording, bot = Recording(), Bot([Answer(["Hi."])])

    async def stopped(aggregator, *words):
        bot.context.add_message(dict(NOTE))

    bot.user.add_event_handler("on_user_turn_stopped", stopped)
    conversation = recording.run(bot, lambda bot: bot.ask("Hi"))
    assert NOTE in conversation.messages


@pytest.mark.parametrize(
    "edit",
    [
        lambda messages: messages.insert(1, dict(NOTE)),
        lambda messages: messages.pop(),
        lambda messages: messages.pop(0),
        lambda messages: messages.clear(),
        lambda messages: messages.__setitem__(slice(None), [dict(NOTE)] * 12),
        lambda messages: messages[1].update(content="Nothing."),
        lambda messages: messages[1].update(extra=1),
        lambda messages: messages.append(
            {"role": "user", "content": [{"type": "text", "text": "a"}], "n": (1, 2.0)}
        ),
        lambda messages: messages.append(
            LLMSpecificMessage("gemini", {"bookmark": b"\x01", "deep": {"$bytes": "x"}})
        ),
        lambda messages: messages.reverse(),
    ],
    ids=["insert", "pop", "shift", "clear", "replace", "change", "widen", "parts", "bytes", "reverse"],
)
def test_an_edit_of_the_live_list_is_seen_before_the_model_is(edit):
    class Memory(FrameProcessor):
        """Changes the context on its way to the model, as mem0 does."""

        async def process_frame(self, frame, direction):
            await super().process_frame(frame, direction)
            if type(frame).__name__ == "LLMContextFrame" and len(frame.context.messages) > 2:
                edit(frame.context.messages)
            await self.push_frame(frame, direction)

    recording, bot = Recording(), Bot([Answer(["One."]), Answer(["Two."])], extra=[Memory()])

    async def play(bot):
        await bot.ask("First")
        await bot.ask("Second")

    recording.run(bot, play)


def test_a_number_that_becomes_another_kind_of_number_is_seen():
    recording, bot = Recording(), Bot(context=LLMContext([{"role": "user", "content": "a", "n": 1}]))

    async def play(bot):
        for value in (True, 1.0, 1, None):
            bot.context.messages[0]["n"] = value
            await bot.settle()
            await bot.queue(LLMMessagesAppendFrame(messages=[], run_llm=False))
            await bot.settle()

    recording.run(bot, play)
    assert [one.message["n"] for one in recording.of("LLMMessageRewriteFrame")] == [True, 1.0, 1, None]


def test_what_frames_change_of_the_context_is_recorded():
    recording, bot = Recording(), Bot()

    async def play(bot):
        await bot.ask("Hi")
        await bot.queue(LLMMessagesTransformFrame(transform=lambda messages: messages[1:], run_llm=False))
        await bot.queue(LLMMessagesUpdateFrame(messages=[dict(NOTE)], run_llm=False))
        await bot.queue(LLMSetToolsFrame(tools=ToolsSchema([FunctionSchema("f", "F.", {}, [])])))
        await bot.queue(LLMSetToolChoiceFrame(tool_choice="required"))
        await bot.queue(LLMUpdateSettingsFrame(delta=LLMSettings(temperature=0.5)))
        await bot.settle()

    conversation = recording.run(bot, play)
    terms = conversation.state.terms
    assert conversation.messages == (NOTE,)
    assert [one["function"]["name"] for one in terms.tools] == ["f"]
    assert (terms.tool_choice, terms.settings["temperature"]) == ("required", 0.5)


@pytest.mark.regression("bridge 36")
def test_a_choice_that_is_taken_back_and_a_tool_that_joins_the_others_are_recorded():
    first, second = (FunctionSchema(name, "F.", {}, []) for name in ("first", "second"))
    context = LLMContext(tools=ToolsSchema([first]), tool_choice="required")
    recording, bot = Recording(), Bot(context=context)

    async def play(bot):
        await bot.ask("Hi")
        await bot.queue(LLMSetToolChoiceFrame(tool_choice=NOT_GIVEN))
        await bot.settle()
        context.tools.standard_tools.append(second)
        await bot.ask("And now?")

    terms = recording.run(bot, play).state.terms
    assert [one["function"]["name"] for one in terms.tools] == ["first", "second"]
    assert terms.tool_choice == "auto"
    assert len(recording.of("LLMSetToolsFrame", "LLMSetToolChoiceFrame")) == 4


def test_what_the_application_notes_is_one_of_the_settings():
    recording, bot = Recording(), Bot()

    recording.observer.note(tenant=7)

    async def play(bot):
        recording.observer.note(flow={"node": "menu"})

    conversation = recording.run(bot, play)
    assert conversation.state.terms.settings["noted"] == {"tenant": 7, "flow": {"node": "menu"}}


def test_an_id_that_is_none_is_refused_at_once():
    for wrong in ("", "a" * 256, "a\x00"):
        with pytest.raises(ValueError, match="1 to 255 bytes"):
            FrameledgerObserver(wrong, connect=Broker)


def test_a_message_that_nobody_could_read_is_counted():
    recording, bot = Recording(), Bot()

    async def play(bot):
        bot.context.add_message({"role": "user", "content": "a" * (9 * 1024 * 1024)})

    bot.worker.add_observer(recording.observer)
    asyncio.run(bot.run(play))
    assert recording.observer.lost == {"refused": 1}


@pytest.mark.parametrize("end", [EndFrame, CancelFrame])
@pytest.mark.parametrize("where", ["turn", "answer", "words", "call"])
def test_an_end_in_the_middle(end, where):
    recording = Recording()
    stops_at = 1 if where in ("answer", "words") else None
    calls: list = [("f", "call-1", {})] if where == "call" else []
    bot = Bot([Answer(["One", " two"], calls, stops_at=stops_at)], where == "words")
    called = asyncio.Event()

    async def f(params):
        called.set()
        await asyncio.Event().wait()

    bot.model.register_function("f", f)

    async def play(bot):
        await bot.say("Go.") if where != "turn" else await bot.queue(TTSSpeakFrame("Hello"))
        if where == "call":
            await called.wait()
        elif where != "turn":
            await bot.model.stopped.wait()
        await bot.queue(CancelFrame() if end is CancelFrame else EndFrame())
        # A model during an answer would block the end forever.
        if end is EndFrame and stops_at is not None:
            await bot.interrupt_only()

    conversation = recording.run(bot, play)
    assert recording.of("EndFrame", "CancelFrame")[-1].type == end.__name__
    assert conversation.state.terms.ended
