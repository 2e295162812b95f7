"""Frames of clients about the history, and how versions and positions are counted (RA5)."""

import json

import pytest
from tests.unit.rules.dsl import (
    CONTEXT,
    announce,
    answer,
    append,
    ask,
    begin,
    cancel,
    context,
    end,
    finish,
    hear,
    interrupt,
    play,
    push,
    result,
    run_id,
    settings,
    speak,
    start,
    stop,
    thought,
    tokens,
    update,
)

from frameledger.context import LLMSpecificMessage
from frameledger.evolve import State
from frameledger.evolve.changes import EraBegan, MessageAppended
from frameledger.evolve.state import MessageCursor, RequestParameters
from frameledger.fold import Conversation, fold
from frameledger.frames import (
    ForkedFrom,
    LLMContextFrame,
    LLMEnablePromptCachingFrame,
    LLMMessagesAppendFrame,
    LLMMessagesUpdateFrame,
)
from frameledger.record import decode

UNKNOWN = decode(b'{"type": "SomethingOfTomorrowFrame", "text": "x", "run_llm": true}')
NEWER = decode(b'{"type": "LLMMessagesAppendFrame", "v": 2, "messages": "of another shape"}')


# Versions.


@pytest.mark.rule("RA5.version")
def test_every_frame_gets_the_next_version_whatever_becomes_of_it():
    frames = [
        append("x"),
        stop(),
        UNKNOWN,
        hear(" "),
        append(),
        end("no such run"),
        NEWER,
        finish(),
        finish(),
    ]
    played = play(frames)
    assert [step.state.version for step in played.steps] == list(range(1, len(frames) + 1))
    assert set(played.outcomes) == {"applied", "ignored", "unknown"}


@pytest.mark.rule("RA5.version")
@pytest.mark.parametrize("frame", [UNKNOWN, NEWER], ids=["type", "version"])
def test_an_unknown_frame_changes_nothing_but_the_version(frame):
    before = play(append("x"), speak(), hear("hi"), begin("a"), start(), tokens("half"))
    after = play(frame, onto=before)
    assert (after.became, after.changes, after.effects[-1]) == ("unknown", (), ())
    assert (
        play(tokens(" done"), end(), stop(), onto=after).texts
        == play(tokens(" done"), end(), stop(), onto=before).texts
    )


@pytest.mark.rule("RA5.version")
@pytest.mark.parametrize("again", [append("x", run_llm=True), append("y"), ask()])
def test_a_repetition_gets_no_version_and_changes_nothing(again):
    first = append("x", run_llm=True).model_copy(update={"id": "one"})
    once = play(first)
    twice = play(again.model_copy(update={"id": "one"}), onto=once)
    assert twice.steps[-1] is None
    assert (twice.state, twice.messages, twice.effects[-1]) == (once.state, once.messages, ())


@pytest.mark.rule("RA5.version")
def test_a_frame_without_an_id_is_never_a_repetition():
    played = play(append("x"), append("x"), hear("x"), hear("x"))
    assert (played.texts, played.state.version) == (["user: x"] * 4, 4)


@pytest.mark.rule("RA5.version")
def test_a_number_is_no_id():
    counted = decode(
        b'{"type": "LLMMessagesAppendFrame", "id": 7, "messages": [{"role": "user", "content": "x"}]}'
    )
    assert play(counted, counted).texts == ["user: x"] * 2


@pytest.mark.rule("RA5.version")
def test_an_unknown_frame_too_is_recognised_when_it_comes_again():
    played = play(UNKNOWN.model_copy(update={"id": "one"}), append("x").model_copy(update={"id": "one"}))
    assert (played.steps[-1], played.messages, played.state.version) == (None, [], 1)


@pytest.mark.rule("RA5.version")
def test_an_ignored_frame_too_is_recognised_when_it_comes_again():
    late = stop().model_copy(update={"id": "stop"})
    played = play(late, speak(), hear("hi"), late)
    assert (played.steps[-1], played.messages, played.state.version) == (None, [], 3)


@pytest.mark.rule("RA5.version", "RA5.request")
def test_ignored_and_unknown_frames_count_for_the_id_of_a_run():
    played = play(stop(), UNKNOWN, ask())
    assert played.state.runs.open.run_id == run_id(3)
    assert played.effects[-1][0].version == 3


# Messages.

ODD = [
    {"role": "tool", "tool_call_id": "nobody", "content": "x"},
    {"role": "assistant", "content": None, "tool_calls": [{"id": "a", "type": "function", "function": {}}]},
    {"role": "assistant", "content": ""},
    {"role": "user", "content": [{"type": "text", "text": " x "}]},
    {"role": "user", "content": " x "},
    {"role": "user", "content": " x "},
    {"role": "system", "content": "late"},
    {"role": "of tomorrow", "n": [1, 1.0, True, None, {}]},
    {"llm": "x", "message": {"type": "thought", "text": "", "signature": None}},
    {},
]


@pytest.mark.rule("RA5.messages")
@pytest.mark.parametrize(
    "frame",
    [
        LLMMessagesAppendFrame(messages=ODD),
        LLMMessagesUpdateFrame(messages=ODD),
        LLMContextFrame(context={"messages": ODD}),
    ],
)
def test_messages_of_clients_are_taken_as_they_are(frame):
    played = play(frame)
    assert json.dumps(played.messages) == json.dumps(ODD)
    assert played.context.messages[8] == LLMSpecificMessage("x", ODD[8]["message"])


@pytest.mark.rule("RA5.messages")
def test_an_append_goes_to_the_end_in_order_and_repeats_stay():
    played = play(append("a", "b"), append(), append("b"), append("b", "b"))
    assert played.texts == [f"user: {content}" for content in "abbbb"]
    assert (played.outcomes, played.asked) == (["applied"] * 4, [])


@pytest.mark.rule("RA5.messages")
@pytest.mark.parametrize("replaces", [update("n", "m"), context("n", "m")])
def test_an_update_replaces_the_whole_history_and_begins_an_era(replaces):
    played = play(append("a", "b", "c"), replaces)
    assert (played.texts, played.positions) == (["user: n", "user: m"], [1, 2])
    assert played.changes[0] == EraBegan(2)
    assert play(replaces, append("x"), onto=played).positions == [1, 2, 3]


@pytest.mark.rule("RA5.messages")
@pytest.mark.parametrize("run_llm", [True, False, None])
@pytest.mark.parametrize("frame", [append, update, context])
def test_these_ask_only_if_told_to(frame, run_llm):
    played = play(frame("x", run_llm=run_llm))
    assert played.asked == ([1] if run_llm else [])
    empty = play(frame(run_llm=run_llm))
    assert (empty.messages, empty.asked) == ([], [1] if run_llm else [])


@pytest.mark.rule("RA5.messages")
@pytest.mark.parametrize("replaces", [update("new"), context("new")])
def test_a_call_goes_on_when_the_history_is_replaced(replaces):
    played = play(begin("a"), begin("b", sync=False), replaces, result("a", 1), result("b", 2))
    assert (played.texts[0], len(played.texts)) == ("user: new", 2)
    assert played.messages[1]["role"] == "developer"
    assert played.reasons[-2:] == ["place_replaced", None]
    assert played.state.calls.open == {}


@pytest.mark.rule("RA5.messages")
@pytest.mark.parametrize(
    "said", [update("new"), context("new"), settings(temperature=1)], ids=lambda frame: frame.type
)
def test_what_clients_say_closes_no_run_and_drops_no_remembered_one(said):
    played = play(ask(), start(1), ask(), said, end(1))
    assert (played.asked, played.opened) == ([1, 3], [1, 5])


@pytest.mark.rule("RA5.messages", "RA5.settings")
def test_an_update_leaves_tools_settings_and_choice():
    opened = context("x", tools=[{"n": 1}], tool_choice="auto", settings={"t": 1})
    played = play(opened, LLMEnablePromptCachingFrame(enable=True), update("y"))
    assert played.context.to_wire() == {
        "messages": [{"role": "user", "content": "y"}],
        "tools": [{"n": 1}],
        "tool_choice": "auto",
        "settings": {"t": 1},
    }
    assert played.state.terms.prompt_caching is True


@pytest.mark.rule("RA5.messages", "RA5.settings")
@pytest.mark.parametrize(
    "empty", [{}, {"messages": None, "tools": None, "tool_choice": None, "settings": None}]
)
def test_an_absent_part_of_a_context_is_empty(empty):
    full = context("x", tools=[{"n": 1}], tool_choice="auto", settings={"t": 1})
    played = play(full, LLMContextFrame(context=empty))
    assert played.context.to_wire() == {"messages": [], "tools": [], "tool_choice": None, "settings": {}}


@pytest.mark.rule("RA5.origin")
def test_where_a_context_comes_from_changes_nothing_of_how_it_is_folded():
    before = [append("a"), begin("f"), ask(), start(3), tokens("half", run=3)]
    plain = context("x", tools=[{"n": 1}], run_llm=True)
    origin = ForkedFrom(context_id="elsewhere", version=7, chain="0f" * 32)
    forked = plain.model_copy(update={"forked_from": origin, "metadata": {"experiment": "rerun"}})
    after = play(before, forked)
    assert (after.state, after.messages) == (play(before, plain).state, play(before, plain).messages)
    assert after.became == "applied"


# Positions.


@pytest.mark.rule("RA5.positions")
def test_a_position_is_given_once_within_its_era_and_only_grows():
    frames = [append("x", "y"), ask(), start(2), tokens("a", run=2), push(2), start(2, 2), thought("s", 2, 2)]
    frames += [
        tokens("b", run=2, attempt=2),
        announce("f", run=2, attempt=2),
        end(2, 2),
        begin("f", attempt=1),
    ]
    frames += [
        result("f", 1),
        interrupt(""),
        append("z"),
        update("n"),
        append("m"),
        answer("c"),
        interrupt(""),
    ]
    frames += [
        append("o"),
        begin("g", sync=False),
        result("g", 1, final=False),
        cancel("g"),
        hear("w"),
        finish(),
    ]
    era = 1
    given: dict[int, list[int]] = {1: []}
    for step in play(frames).steps:
        for change in step.changes:
            if isinstance(change, EraBegan):
                era += 1
                given[change.era] = []
            elif isinstance(change, MessageAppended):
                given[era].append(change.position)
    assert len(given) == 2
    for positions in given.values():
        assert positions == list(range(1, len(positions) + 1))


@pytest.mark.rule("RA5.positions")
def test_a_conversation_that_starts_with_messages_goes_on_behind_them():
    first, terms = {"role": "system", "content": "Be brief."}, RequestParameters(skip_tts=True)
    begun = Conversation.starting(CONTEXT, terms, [first, first])
    assert begun.rows == ((1, first), (2, first))
    assert begun.state == State(CONTEXT, place=MessageCursor(next_position=3), terms=terms)
    assert fold([LLMMessagesAppendFrame(messages=[first])], begun).rows[-1] == (3, first)


@pytest.mark.rule("RA5.positions")
def test_a_message_that_went_leaves_a_gap():
    played = play(append("a"), answer("not heard"), interrupt(""), append("b"))
    assert (played.texts, played.positions) == (["user: a", "user: b"], [1, 3])


@pytest.mark.rule("RA5.positions")
def test_a_result_keeps_the_place_of_its_call():
    played = play(begin("a"), append("x"), result("a", 1))
    assert (played.texts, played.positions) == (["assistant calls a(a)", "tool a: 1", "user: x"], [1, 2, 3])
