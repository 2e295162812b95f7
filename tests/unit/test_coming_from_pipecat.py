"""Programs that were written for the API on which the frames are based: which parts run unchanged."""

import inspect
import re
import types
import warnings
from pathlib import Path
from typing import Any

import pytest

from frameledger import frames
from frameledger.aggregators import (
    LLMAssistantContextAggregator,
    LLMAssistantResponseAggregator,
    LLMContextAggregator,
    LLMContextAggregatorPair,
    LLMUserContextAggregator,
    LLMUserResponseAggregator,
)
from frameledger.context import LLMContext, LLMSpecificMessage, OpenAILLMContext, trimmed
from frameledger.frames import (
    ContextSnapshot,
    Frame,
    FunctionCallResultFrame,
    InterruptionFrame,
    LLMContextAssistantTimestampFrame,
    LLMContextFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMMessagesAppendFrame,
    LLMMessagesUpdateFrame,
    LLMSetToolsFrame,
    LLMTextFrame,
    TranscriptionFrame,
    UserStartedSpeakingFrame,
    UserStoppedSpeakingFrame,
    encode_frame,
    frame_from_object,
    parse_frame,
)
from frameledger.tools import FunctionSchema, ToolsSchema
from frameledger.upcasters import upcast

SYSTEM = {"role": "system", "content": "You are a helpful assistant."}
THOUGHT = LLMSpecificMessage(llm="anthropic", message={"type": "thought", "text": "Hm."})
DOWNSTREAM = object()


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def turn(text: str) -> list[Frame]:
    return [UserStartedSpeakingFrame(), TranscriptionFrame(text=text), UserStoppedSpeakingFrame()]


def answer(text: str) -> list[Frame]:
    return [LLMFullResponseStartFrame(), LLMTextFrame(text=text), LLMFullResponseEndFrame()]


def talk(hearing: Any, speaking: Any) -> list[Frame]:
    """Two turns, each frame to the side that it comes by; what came out at the second turn."""
    for frame in turn("Hello"):
        hearing.process_frame(frame, DOWNSTREAM)
    for frame in answer("Hi."):
        speaking.process_frame(frame, DOWNSTREAM)
    return [out for frame in turn("And you?") for out in hearing.process_frame(frame, DOWNSTREAM)]


SAID = [SYSTEM, user("Hello"), assistant("Hi."), user("And you?")]


@pytest.mark.regression("repair 2")
@pytest.mark.parametrize("kind", [LLMContext, OpenAILLMContext])
@pytest.mark.filterwarnings("ignore:OpenAILLMContext is deprecated")
def test_two_aggregators_made_on_one_context_hold_one_conversation(kind: type[LLMContext]) -> None:
    context = kind([SYSTEM])
    hearing, speaking = LLMUserContextAggregator(context), LLMAssistantContextAggregator(context)
    assert talk(hearing, speaking) == [LLMContextFrame(context=LLMContext(SAID), run_llm=True)]
    assert hearing.context == speaking.context == LLMContext(SAID)
    assert context == LLMContext([SYSTEM])


@pytest.mark.regression("repair 2", "seed messages-shared")
def test_two_aggregators_made_on_one_list_of_messages_hold_one_conversation() -> None:
    messages = [SYSTEM]
    speaking, hearing = LLMAssistantResponseAggregator(messages), LLMUserResponseAggregator(messages)
    assert talk(hearing, speaking) == [LLMMessagesUpdateFrame(messages=SAID, run_llm=True)]
    assert list(speaking.messages) == SAID
    assert messages == [SYSTEM]


@pytest.mark.regression("repair 2")
def test_two_halves_of_one_role_share_nothing_whatever_they_were_made_on() -> None:
    context, messages = LLMContext([SYSTEM]), [SYSTEM]
    for one, two in (
        (LLMUserContextAggregator(context), LLMUserContextAggregator(context)),
        (LLMUserResponseAggregator(messages), LLMUserResponseAggregator(messages)),
        (LLMUserResponseAggregator(), LLMAssistantResponseAggregator()),
    ):
        before = list(two.messages)
        for frame in turn("Hello"):
            one.process_frame(frame)
        assert list(two.messages) == before


@pytest.mark.regression("repair 2")
def test_conversations_that_begin_with_one_context_stay_apart() -> None:
    context = LLMContext([SYSTEM])
    first = LLMUserContextAggregator(context), LLMAssistantContextAggregator(context)
    second = LLMUserContextAggregator(context), LLMAssistantContextAggregator(context)
    pair = LLMContextAggregatorPair(context)
    talk(*first)
    talk(*second)
    assert [list(half.messages) for half in (*first, *second)] == [SAID] * 4
    assert list(pair.messages) == [SYSTEM]


@pytest.mark.regression("repair 2")
def test_a_half_that_could_belong_to_two_conversations_is_refused() -> None:
    context = LLMContext([SYSTEM])
    halves = [LLMUserContextAggregator(context), LLMUserContextAggregator(context)]
    with pytest.raises(ValueError, match=r"2 conversations .* LLMContextAggregatorPair"):
        LLMAssistantContextAggregator(context)
    halves.pop()
    assert LLMAssistantContextAggregator(context).messages == (SYSTEM,)


@pytest.mark.regression("repair 17")
def test_an_aggregator_without_a_role_takes_both_sides() -> None:
    context = LLMContext([SYSTEM])
    both = LLMContextAggregator(context)
    assert talk(both, both) == [LLMContextFrame(context=LLMContext(SAID), run_llm=True)]
    assert both.aggregation == "And you?"
    both.process_frame(LLMFullResponseStartFrame())
    both.process_frame(LLMTextFrame(text="Fine"))
    assert both.aggregation == "Fine"
    assert LLMAssistantContextAggregator(context).messages == (SYSTEM,)


@pytest.mark.regression("repair 3")
def test_messages_of_one_provider_go_into_frames_as_they_are() -> None:
    wire = THOUGHT.to_wire()
    assert LLMMessagesAppendFrame(messages=[THOUGHT]).messages == (wire,)
    assert LLMContextFrame(context=ContextSnapshot(messages=[THOUGHT])).context.messages == (wire,)
    context = LLMContext([SYSTEM, user("Hello"), THOUGHT, assistant("Hi.")])
    update = LLMMessagesUpdateFrame(messages=trimmed(context.messages, max_messages=3))
    assert update.messages == (SYSTEM, wire, assistant("Hi."))
    assert parse_frame(encode_frame(update)) == update


@pytest.mark.regression("seed LLMContext-tools")
def test_tools_go_into_frames_in_every_form_that_a_context_takes() -> None:
    schema = FunctionSchema("look", "Looks.", {"where": {"type": "string"}}, ["where"])
    tools = ToolsSchema([schema], {"anthropic": [{"type": "web_search"}]})
    assert LLMSetToolsFrame(tools=[schema]).tools == (schema.to_openai(),)
    assert LLMSetToolsFrame(tools=tools).tools == tuple(tools.to_wire())
    assert ContextSnapshot(tools=tools).tools == tuple(tools.to_wire())
    assert LLMSetToolsFrame(tools=(one for one in [schema, schema.to_openai()])).tools == (
        schema.to_openai(),
        schema.to_openai(),
    )


@pytest.mark.regression("seed LLMContext-tools")
def test_a_function_among_tools_is_refused_with_the_way_to_its_schema() -> None:
    def look(where: str) -> str:
        return where

    for make in (
        lambda: LLMContext(tools=[look]),  # type: ignore[list-item]
        lambda: LLMSetToolsFrame(tools=[look]),
    ):
        with pytest.raises((TypeError, ValueError), match=r"function 'look'.*schema_of.*set_tools"):
            make()


@pytest.mark.regression("repair 4")
def test_the_context_in_a_frame_reads_as_a_context() -> None:
    tools = [FunctionSchema("look").to_openai()]
    context = LLMContext([SYSTEM, THOUGHT], tools=tools, settings={"seed": 1}, tool_choice="auto")
    snapshot = LLMContextFrame(context=context).context
    assert snapshot.to_context() == LLMContext.from_wire(snapshot) == context
    assert LLMContext.from_wire(snapshot, copy=False) == context
    assert snapshot.to_wire() == context.to_wire()
    assert snapshot.get_messages() == context.get_messages()
    assert snapshot.get_messages(llm="openai") == (SYSTEM,)
    assert snapshot.get_tools() == context.get_tools()
    assert snapshot.add_message(user("Hello")) == context.add_message(user("Hello"))
    assert snapshot.add_messages([user("Hello")]) == context.add_messages([user("Hello")])
    assert snapshot.set_tool_choice("none") == context.set_tool_choice("none")
    assert LLMContextAggregatorPair(snapshot).context == context


@pytest.mark.regression("repair 4")
def test_a_context_has_no_reader_that_the_context_in_a_frame_lacks() -> None:
    public = {name for name, _ in inspect.getmembers(LLMContext, callable) if not name.startswith("_")}
    assert public - {"from_wire"} <= set(dir(ContextSnapshot))


def old(name: str) -> Any:
    with pytest.warns(DeprecationWarning, match=name):
        return getattr(frames, name)


@pytest.mark.regression("repair 14")
def test_an_old_name_is_a_class_that_knows_the_frames_it_stands_for() -> None:
    messages_frame, context_frame = old("LLMMessagesFrame"), old("OpenAILLMContextFrame")
    (asked,) = talk(*[LLMContextAggregatorPair(LLMContext([SYSTEM]))] * 2)
    assert isinstance(asked, context_frame)
    assert not isinstance(asked, messages_frame)
    frame = messages_frame(messages=[SYSTEM])
    assert isinstance(frame, messages_frame)
    assert isinstance(frame, LLMMessagesUpdateFrame)
    assert isinstance(parse_frame(encode_frame(frame)), messages_frame)
    assert not isinstance(LLMMessagesUpdateFrame(messages=[SYSTEM]), messages_frame)
    assert not isinstance("text", messages_frame)


@pytest.mark.regression("repair 14")
def test_a_subclass_of_an_old_name_is_a_frame_of_its_own() -> None:
    messages_frame = old("LLMMessagesFrame")

    class Mine(messages_frame):  # type: ignore[misc, valid-type]
        """An application's own."""

    mine = Mine(messages=[SYSTEM])
    assert isinstance(mine, Mine)
    assert isinstance(mine, messages_frame)
    assert not isinstance(messages_frame(messages=[SYSTEM]), Mine)
    assert encode_frame(mine) == encode_frame(LLMMessagesUpdateFrame(messages=[SYSTEM], run_llm=True))


@pytest.mark.regression("repair 14")
def test_an_old_name_called_wrongly_says_what_it_takes() -> None:
    messages_frame = old("LLMMessagesFrame")
    with pytest.raises(TypeError, match="LLMMessagesFrame takes its fields by keyword"):
        messages_frame([SYSTEM])
    with pytest.raises(ValueError, match=r"LLMMessagesUpdateFrame\s+messages"):
        messages_frame()


@pytest.mark.regression("repair 14")
def test_the_two_old_names_of_one_frame_are_that_frame() -> None:
    assert old("StartInterruptionFrame") is InterruptionFrame
    assert old("OpenAILLMContextAssistantTimestampFrame") is LLMContextAssistantTimestampFrame


def test_only_an_old_name_warns() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        LLMContextAggregatorPair(LLMContext())


@pytest.mark.regression("repair 12")
def test_the_reference_promises_a_timestamp_nowhere_but_on_the_log() -> None:
    assert "transcript" not in (inspect.getdoc(LLMContextAssistantTimestampFrame) or "")


PAGE = Path(__file__).resolve().parents[2] / "events/coming-from-pipecat.md"


@pytest.mark.regression(
    "seed LLMService-one-object",
    "seed LLMContext-tools",
    "seed add_message-statement",
    "seed process_frame-direction",
    "seed messages-shared",
    "seed FunctionCallResultFrame-error",
    "repair 15",
)
def test_every_example_of_the_page_runs() -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 6
    module = types.ModuleType("page")
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), vars(module))  # one after the other, as a reader would


def test_a_context_in_a_statement_of_its_own_stays_as_it_was() -> None:
    context = LLMContext([SYSTEM])
    context.add_message(user("Hello"))
    context.set_tool_choice("none")
    assert context == LLMContext([SYSTEM])


def test_the_spelling_of_an_old_result_is_read_on_the_log_and_refused_in_python() -> None:
    old_form: dict[str, Any] = {"function_name": "look", "call_id": "c", "error": "No such city."}
    with pytest.raises(ValueError, match="tool_call_id"):
        FunctionCallResultFrame(**old_form)
    read = frame_from_object(upcast({"type": "FunctionCallResultFrame", **old_form}))
    assert read == FunctionCallResultFrame(
        function_name="look", tool_call_id="c", result={"error": "No such city."}
    )
