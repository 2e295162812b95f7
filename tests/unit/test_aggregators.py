"""The old aggregator classes: the documented patterns work, and follow the rules of the log."""

from dataclasses import dataclass

import pytest

from frameledger.aggregators import (
    LLMAssistantContextAggregator,
    LLMAssistantResponseAggregator,
    LLMContextAggregator,
    LLMContextAggregatorPair,
    LLMFullResponseAggregator,
    LLMResponseAggregator,
    LLMUserContextAggregator,
    LLMUserResponseAggregator,
)
from frameledger.context import LLMContext, OpenAILLMContext
from frameledger.frames import (
    BotStartedSpeakingFrame,
    BotStoppedSpeakingFrame,
    EndFrame,
    Frame,
    FunctionCallCancelFrame,
    FunctionCallInProgressFrame,
    FunctionCallResultFrame,
    InterimTranscriptionFrame,
    InterruptionFrame,
    LLMAssistantPushAggregationFrame,
    LLMContextFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMMessageRewriteFrame,
    LLMMessagesAppendFrame,
    LLMMessagesUpdateFrame,
    LLMRunFrame,
    LLMSetToolsFrame,
    LLMTextFrame,
    LLMThoughtEndFrame,
    LLMThoughtStartFrame,
    LLMThoughtTextFrame,
    TextFrame,
    TranscriptionFrame,
    TranslationFrame,
    UnknownFrame,
    UserStartedSpeakingFrame,
    UserStoppedSpeakingFrame,
    VisionFullResponseEndFrame,
    VisionFullResponseStartFrame,
    VisionTextFrame,
)

SYSTEM = {"role": "system", "content": "You are a parrot."}
TOOL = {"type": "function", "function": {"name": "look", "description": "", "parameters": {}}}


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


def given(aggregator, *frames):
    """What these frames give rise to, one after the other, as one list."""
    return [output for frame in frames for output in aggregator.process_frame(frame)]


def pattern(letters):
    """The frames of a pattern: S and E are start and end, T1 is final words, I1 interim ones."""
    letter = {
        "S": lambda _: UserStartedSpeakingFrame(),
        "E": lambda _: UserStoppedSpeakingFrame(),
        "T": lambda n: TranscriptionFrame(text=f"Hello{n}"),
        "I": lambda n: InterimTranscriptionFrame(text=f"Hel{n}"),
    }
    return [letter[one[0]](one[1:]) for one in letters.split()]


def answer(*pieces):
    return [LLMFullResponseStartFrame(), *pieces, LLMFullResponseEndFrame()]


def started(tool_call_id="c", **fields):
    return FunctionCallInProgressFrame(
        function_name="look", tool_call_id=tool_call_id, arguments={}, **fields
    )


def result(value, tool_call_id="c", **fields):
    return FunctionCallResultFrame(function_name="look", tool_call_id=tool_call_id, result=value, **fields)


PATTERNS = [
    ("S E", []),
    ("S T E", ["Hello"]),
    ("S I T E", ["Hello"]),
    ("S I E T", ["Hello"]),
    ("S I E I T", ["Hello"]),
    ("S E T", ["Hello"]),
    ("S E I T", ["Hello"]),
    ("S I E T1 I T2", ["Hello1", "Hello2"]),
    ("S T1 I E T2", ["Hello1 Hello2"]),
    ("S T I E E", ["Hello"]),
    ("S T1 E S T2 E", ["Hello1", "Hello2"]),
]


@pytest.mark.rule("R1.1", "R1.2", "R1.4")
@pytest.mark.parametrize(("letters", "turns"), PATTERNS)
def test_each_pattern_of_a_turn_gives_each_of_its_messages_once(letters, turns):
    aggregator = LLMUserResponseAggregator([SYSTEM])
    outputs = given(aggregator, *pattern(letters))
    said = [SYSTEM, *map(user, turns)]
    assert [list(output.messages) for output in outputs] == [said[: n + 2] for n in range(len(turns))]
    assert all(type(output) is LLMMessagesUpdateFrame and output.run_llm is True for output in outputs)
    assert list(aggregator.messages) == said
    assert aggregator.aggregation == (turns[-1] if turns else "")


@pytest.mark.rule("R1.1", "R1.2", "R1.4")
@pytest.mark.parametrize(("letters", "turns"), PATTERNS)
def test_each_pattern_gives_the_context_where_a_context_is_held(letters, turns):
    aggregator = LLMUserContextAggregator(LLMContext([SYSTEM], tools=[TOOL], settings={"seed": 1}))
    outputs = given(aggregator, *pattern(letters))
    assert len(outputs) == len(turns)
    assert all(type(output) is LLMContextFrame and output.run_llm is True for output in outputs)
    assert aggregator.context == LLMContext([SYSTEM, *map(user, turns)], tools=[TOOL], settings={"seed": 1})
    if outputs:
        assert outputs[-1] == LLMContextFrame(context=aggregator.context, run_llm=True)


@pytest.mark.parametrize(
    "pieces",
    [
        [TextFrame(text="Hello"), TextFrame(text="there")],
        [LLMTextFrame(text="Hel"), LLMTextFrame(text="lo there")],
        [VisionTextFrame(text="Hello there\n")],
        [
            TextFrame(text="Hello"),
            TextFrame(text="(cough)", append_to_context=False),
            TextFrame(text=" there"),
        ],
    ],
)
def test_an_answer_is_one_message_and_asks_for_nothing(pieces):
    aggregator = LLMAssistantResponseAggregator([user("Hi.")])
    assert given(aggregator, *answer(*pieces)) == [
        LLMMessagesUpdateFrame(messages=[user("Hi."), assistant("Hello there")])
    ]
    assert aggregator.aggregation == "Hello there"


@pytest.mark.parametrize(
    "pieces", [[], [LLMTextFrame(text="  ")], [TextFrame(text="a", append_to_context=False)]]
)
def test_an_empty_answer_gives_nothing(pieces):
    for aggregator in (LLMAssistantResponseAggregator(), LLMFullResponseAggregator()):
        assert given(aggregator, *answer(*pieces)) == []
        assert (aggregator.messages, aggregator.aggregation) == ((), "")


def test_text_outside_a_response_is_nobodys():
    aggregator = LLMFullResponseAggregator()
    assert given(
        aggregator, TextFrame(text="lost"), *answer(TextFrame(text="kept")), LLMTextFrame(text="lost")
    ) == [TextFrame(text="kept")]


def test_the_aggregation_can_be_read_while_it_grows_and_until_the_next_one_begins():
    aggregator = LLMAssistantResponseAggregator()
    seen = []
    for frame in [*answer(TextFrame(text="Good"), TextFrame(text="day")), LLMFullResponseStartFrame()]:
        aggregator.process_frame(frame)
        seen.append(aggregator.aggregation)
    assert seen == ["", "Good", "Good day", "Good day", ""]


def test_two_aggregators_share_no_messages_and_what_is_given_is_copied():
    first = [dict(SYSTEM)]
    one, two = LLMUserResponseAggregator(first), LLMUserResponseAggregator()
    given(one, *pattern("S T E"))
    first[0]["content"] = "changed"
    first.append(user("more"))
    assert (list(one.messages), two.messages) == ([SYSTEM, user("Hello")], ())


def test_the_context_that_was_given_is_not_changed():
    context = LLMContext([SYSTEM])
    given(LLMUserContextAggregator(context), *pattern("S T E"))
    assert context == LLMContext([SYSTEM])


def test_a_role_is_user_or_assistant():
    kinds = {"start_frame": EndFrame, "end_frame": EndFrame, "accumulator_frame": TextFrame}
    with pytest.raises(ValueError, match="'system'"):
        LLMResponseAggregator(messages=[], role="system", **kinds)
    with pytest.raises(ValueError, match="'tool'"):
        LLMContextAggregator(LLMContext(), role="tool")


# Frames of any types


class Begin(Frame):
    type: str = "Begin"


class Finish(Frame):
    type: str = "Finish"


@dataclass
class Words:
    text: str


class Guess(Words):
    pass


class NearGuess(Guess):
    pass


def own_kinds(role, **options):
    return LLMResponseAggregator(
        messages=[],
        role=role,
        start_frame=Begin,
        end_frame=Finish,
        accumulator_frame=Words,
        interim_accumulator_frame=Guess,
        **options,
    )


@pytest.mark.parametrize(("role", "run"), [("user", True), ("assistant", None)])
def test_frames_of_any_types_are_read_as_those_of_the_role(role, run):
    aggregator = own_kinds(role)
    outputs = given(aggregator, Begin(), Words("one"), Words("two"), Finish())
    assert outputs == [LLMMessagesUpdateFrame(messages=[{"role": role, "content": "one two"}], run_llm=run)]


def test_of_two_classes_that_fit_the_nearest_counts():
    aggregator = own_kinds("user")
    assert given(aggregator, Begin(), NearGuess("on"), Finish()) == []
    assert [output.messages for output in given(aggregator, Words("one"))] == [(user("one"),)]


def test_standard_frames_pass_by_an_aggregator_of_other_kinds():
    for role in ("user", "assistant"):
        aggregator = own_kinds(role)
        assert given(aggregator, *pattern("S T E"), *answer(TextFrame(text="a")), started(), result(1)) == []
        assert aggregator.messages == ()


def test_words_that_bring_their_spaces_are_joined_as_they_are():
    aggregator = own_kinds("assistant", expect_stripped_words=False)
    assert given(aggregator, Begin(), Words("on"), Words("e "), Words("two"), Finish())
    assert aggregator.aggregation == "one two"


def test_subclasses_of_the_frames_count():
    aggregator = LLMAssistantResponseAggregator()
    frames = [VisionFullResponseStartFrame(), VisionTextFrame(text="A cat."), VisionFullResponseEndFrame()]
    assert [output.messages for output in given(aggregator, *frames)] == [(assistant("A cat."),)]


def test_what_was_heard_is_no_text_of_an_answer():
    heard = [
        TranscriptionFrame(text="hey"),
        InterimTranscriptionFrame(text="he"),
        TranslationFrame(text="ho"),
    ]
    for aggregator in (LLMAssistantResponseAggregator(), LLMAssistantContextAggregator(LLMContext())):
        given(aggregator, *answer(*heard, TextFrame(text="mine")))
        assert aggregator.messages == (assistant("mine"),)


@pytest.mark.parametrize("frame", [UnknownFrame(type="VendorFrame"), Begin(), object(), None, "text"])
def test_a_frame_that_no_rule_knows_is_passed_over(frame):
    for aggregator in (
        LLMUserResponseAggregator(),
        LLMFullResponseAggregator(),
        LLMAssistantContextAggregator(LLMContext()),
        LLMContextAggregatorPair(LLMContext()),
    ):
        assert aggregator.process_frame(frame) == ()


# Interruptions


@pytest.mark.rule("R2.6")
def test_an_interruption_keeps_what_was_said_so_far():
    for aggregator in (LLMAssistantResponseAggregator(), LLMAssistantContextAggregator(LLMContext())):
        given(aggregator, LLMFullResponseStartFrame(), LLMTextFrame(text="Once upon"))
        assert len(aggregator.process_frame(InterruptionFrame())) == 1
        assert given(aggregator, LLMTextFrame(text=" a time"), LLMFullResponseEndFrame()) == []
        assert aggregator.messages == (assistant("Once upon"),)


def test_what_was_said_before_an_interruption_is_given_as_one_text():
    aggregator = LLMFullResponseAggregator()
    begun = [LLMFullResponseStartFrame(), LLMTextFrame(text="Once"), LLMTextFrame(text=" upon")]
    assert given(aggregator, *begun, InterruptionFrame()) == [TextFrame(text="Once upon")]


@pytest.mark.regression("fault 115")
def test_words_of_the_user_that_waited_for_an_answer_are_no_answer():
    aggregator = LLMFullResponseAggregator()
    waiting = LLMMessagesAppendFrame(
        messages=[{"role": "user", "content": "And then?"}], run_llm=True, second_input="coalesce"
    )
    begun = [LLMRunFrame(), LLMFullResponseStartFrame(), LLMTextFrame(text="Once"), waiting]
    assert given(aggregator, *begun, LLMFullResponseEndFrame()) == [TextFrame(text="Once")]
    assert aggregator.messages == (assistant("Once"), {"role": "user", "content": "And then?"})


@pytest.mark.regression("fault 115")
def test_a_message_that_a_client_rewrites_is_no_answer():
    aggregator = LLMFullResponseAggregator()
    given(aggregator, *answer(LLMTextFrame(text="Once")))
    for message in (assistant("Twice"), {"role": "user", "content": "Why?"}):
        assert given(aggregator, LLMMessageRewriteFrame(position=1, message=message)) == []
        assert aggregator.messages == (message,)


@pytest.mark.rule("R6.7")
def test_an_interruption_that_says_what_was_heard_corrects_the_answer():
    aggregator = LLMAssistantContextAggregator(LLMContext())
    given(aggregator, *answer(LLMTextFrame(text="Once upon a time")))
    (output,) = given(aggregator, InterruptionFrame(heard_text="Once"))
    assert (output.context.messages, output.run_llm) == ((assistant("Once"),), None)
    assert aggregator.aggregation == "Once"


def test_an_interruption_passes_by_where_it_is_not_handled():
    aggregator = own_kinds("assistant")
    assert given(aggregator, Begin(), Words("one"), InterruptionFrame(), Words("two"), Finish())
    assert aggregator.messages == (assistant("one two"),)
    listener = LLMUserResponseAggregator()
    given(listener, UserStartedSpeakingFrame(), TranscriptionFrame(text="one"), InterruptionFrame())
    assert listener.aggregation == "one"


# What clients say about the context


def test_clients_change_the_messages_of_every_aggregator():
    for aggregator in (
        LLMUserResponseAggregator([SYSTEM]),
        LLMAssistantResponseAggregator([SYSTEM]),
        LLMUserContextAggregator(LLMContext([SYSTEM])),
        LLMAssistantContextAggregator(LLMContext([SYSTEM])),
    ):
        assert given(aggregator, LLMMessagesAppendFrame(messages=[user("a")])) == []
        assert list(aggregator.messages) == [SYSTEM, user("a")]
        assert given(aggregator, LLMMessagesUpdateFrame(messages=[user("b")])) == []
        assert list(aggregator.messages) == [user("b")]
        assert aggregator.aggregation == ""


@pytest.mark.parametrize("frame", [LLMRunFrame(), LLMMessagesAppendFrame(messages=[], run_llm=True)])
def test_a_client_that_asks_for_a_run_gets_the_conversation(frame):
    assert given(LLMUserResponseAggregator([SYSTEM]), frame) == [
        LLMMessagesUpdateFrame(messages=[SYSTEM], run_llm=True)
    ]
    context = LLMContext([SYSTEM])
    assert given(LLMUserContextAggregator(context), frame) == [LLMContextFrame(context=context, run_llm=True)]


def test_tools_can_be_set():
    aggregator = LLMUserContextAggregator(LLMContext(tool_choice="auto"))
    assert given(aggregator, LLMSetToolsFrame(tools=[TOOL])) == []
    assert aggregator.context == LLMContext(tools=[TOOL], tool_choice="auto")


@pytest.mark.rule("R1.6")
def test_the_end_gives_the_words_that_were_being_heard_and_asks_for_nothing():
    aggregator = LLMUserResponseAggregator()
    outputs = given(aggregator, UserStartedSpeakingFrame(), TranscriptionFrame(text="By"), EndFrame())
    assert outputs == [LLMMessagesUpdateFrame(messages=[user("By")])]
    assert given(aggregator, TranscriptionFrame(text="late")) == [
        LLMMessagesUpdateFrame(messages=[user("By"), user("late")])
    ]


def test_an_old_context_goes_on_with_its_prompt():
    with pytest.warns(DeprecationWarning, match="use LLMContext"):
        context = OpenAILLMContext(system_prompt="You are a helpful assistant.")
    aggregator = LLMUserContextAggregator(context)
    given(aggregator, LLMMessagesUpdateFrame(messages=[{"role": "system", "content": "New system prompt"}]))
    assert aggregator.messages == ({"role": "system", "content": "New system prompt"},)


# Calls and thoughts, and the pair


def test_the_assistant_side_keeps_thoughts_for_their_provider():
    aggregator = LLMAssistantContextAggregator(LLMContext())
    thought = [
        LLMThoughtStartFrame(append_to_context=True, llm="x"),
        LLMThoughtTextFrame(text="hm"),
        LLMThoughtEndFrame(signature="s"),
    ]
    assert given(aggregator, *thought) == []
    kept = {"llm": "x", "message": {"type": "thought", "text": "hm", "signature": "s"}}
    assert aggregator.messages == (kept,)


def test_a_result_asks_for_a_run_with_the_new_context():
    aggregator = LLMAssistantContextAggregator(LLMContext([user("look")]))
    assert given(aggregator, started(cancel_on_interruption=True)) == []
    (output,) = given(aggregator, result("a cat"))
    assert (output.run_llm, output.context.messages[-1]["content"]) == (True, '"a cat"')


def test_a_cancelled_call_asks_for_nothing():
    aggregator = LLMAssistantContextAggregator(LLMContext())
    cancel = FunctionCallCancelFrame(function_name="look", tool_call_id="c")
    assert given(aggregator, started(cancel_on_interruption=True), cancel) == []
    assert aggregator.messages[-1]["content"] == "CANCELLED"


def test_a_pushed_aggregation_comes_before_the_rest_of_the_answer():
    aggregator = LLMAssistantContextAggregator(LLMContext())
    frames = answer(LLMTextFrame(text="One."), LLMAssistantPushAggregationFrame(), LLMTextFrame(text=" Two."))
    outputs = given(aggregator, *frames)
    assert [len(output.context.messages) for output in outputs] == [1, 2]
    assert aggregator.messages == (assistant("One."), assistant("Two."))


def test_text_chunks_are_joined_as_they_are_when_stripped_words_are_not_expected():
    aggregator = LLMAssistantContextAggregator(LLMContext(), expect_stripped_words=False)
    given(aggregator, *answer(TextFrame(text="Hel"), TextFrame(text="lo")))
    assert aggregator.messages == (assistant("Hello"),)


def test_each_half_leaves_the_frames_of_the_other_alone():
    pair = LLMContextAggregatorPair(LLMContext())
    assert given(pair.user(), *answer(LLMTextFrame(text="a")), started(), BotStartedSpeakingFrame()) == []
    assert given(pair.assistant(), *pattern("S T E")) == []
    assert pair.messages == ()


@pytest.mark.rule("R4.1")
def test_the_halves_of_a_pair_see_each_other():
    """The result comes while the user speaks, so its run is the one of the user's turn."""
    pair = LLMContextAggregatorPair(LLMContext([SYSTEM]))
    given(pair.assistant(), started())
    given(pair.user(), UserStartedSpeakingFrame())
    assert given(pair.assistant(), result(1)) == []
    (output,) = given(pair.user(), TranscriptionFrame(text="And?"), UserStoppedSpeakingFrame())
    assert output == LLMContextFrame(context=pair.context, run_llm=True)
    assert pair.user().messages == pair.assistant().messages == pair.messages
    assert pair.messages[-1] == user("And?")


@pytest.mark.regression("fold 7")
@pytest.mark.parametrize("by_setting", [False, True])
@pytest.mark.parametrize("way", ["enqueue", "interrupt", "reject", "coalesce"])
def test_the_user_half_alone_hears_every_turn_whatever_a_second_input_does(way, by_setting):
    """No frame ends a run there, since no answer comes by it."""
    half = LLMUserContextAggregator(LLMContext(settings={"second_input": way} if by_setting else {}))
    said = {} if by_setting else {"second_input": way}
    outputs = given(
        half,
        *(UserStartedSpeakingFrame(**said), TranscriptionFrame(text="one"), UserStoppedSpeakingFrame()),
        *(UserStartedSpeakingFrame(**said), TranscriptionFrame(text="two"), UserStoppedSpeakingFrame()),
        TranscriptionFrame(text="three", **said),
        LLMMessagesAppendFrame(messages=[user("four")], run_llm=True, **said),
    )
    assert [output.run_llm for output in outputs] == [True] * 4
    assert half.messages == (user("one"), user("two"), user("three"), user("four"))


@pytest.mark.rule("R7.3", "R7.5")
@pytest.mark.parametrize(("way", "messages"), [("reject", ["one", "hi"]), ("coalesce", ["one", "hi", "two"])])
def test_two_halves_of_one_conversation_know_when_a_second_input_comes(way, messages):
    context = LLMContext(settings={"second_input": way})
    hears, speaks = LLMUserContextAggregator(context), LLMAssistantContextAggregator(context)
    given(hears, TranscriptionFrame(text="one"), TranscriptionFrame(text="two"))
    assert hears.messages == (user("one"),)
    given(speaks, *answer(LLMTextFrame(text="hi")))
    assert [message["content"] for message in hears.messages] == messages


@pytest.mark.rule("R4.1")
def test_a_run_owed_to_the_bot_is_asked_for_at_its_stop():
    pair = LLMContextAggregatorPair(LLMContext())
    assert given(pair, started(), BotStartedSpeakingFrame(), result(1)) == []
    (output,) = given(pair, BotStoppedSpeakingFrame())
    assert output.run_llm is True


def test_a_pair_takes_the_frames_of_both_sides_in_one_place():
    pair = LLMContextAggregatorPair(LLMContext())
    outputs = given(pair, *pattern("S T E"), *answer(LLMTextFrame(text="Hi.")))
    assert [output.run_llm for output in outputs] == [True, None]
    assert pair.messages == (user("Hello"), assistant("Hi."))
    assert (pair.user().aggregation, pair.assistant().aggregation) == ("Hello", "Hi.")


def test_a_frame_with_an_id_that_both_halves_get_counts_once():
    pair = LLMContextAggregatorPair(LLMContext())
    append = LLMMessagesAppendFrame(id="a1", messages=[user("a")], run_llm=True)
    assert len(given(pair.user(), append)) == 1
    assert given(pair.assistant(), append) == []
    assert pair.messages == (user("a"),)
