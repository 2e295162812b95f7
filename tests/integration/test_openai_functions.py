"""Functions that only a client of OpenAI's API has: their calls, their results, and the history sent with them."""

import json

import httpx
import openai
import pytest
from tests.bounds import ON_SERVERS
from tests.support.killed_request import killed
from tests.support.openai_stage import (
    THANKS,
    TRAIN,
    YES,
    is_valid,
    openai_stage,  # noqa: F401  # a fixture
    said,
)
from tests.support.tiers import first

PAINT = {
    "type": "function",
    "function": {
        "name": "paint",
        "description": "Paints the page.",
        "parameters": {"type": "object", "properties": {"colour": {"type": "string"}}},
    },
}


def asked(stage, context_id, messages, **more):
    return stage.create(
        messages,
        tools=[PAINT],
        extra_headers={"Frameledger-Context": context_id, **more.pop("headers", {})},
        **more,
    ).choices[0]


def message_of(choice):
    return choice.message.model_dump(exclude_none=True)


def results(choice, content="done"):
    return [
        {"role": "tool", "tool_call_id": call.id, "content": content}
        for call in choice.message.tool_calls or ()
    ]


def test_a_function_that_only_the_client_has_is_called_there_and_its_result_goes_on(stage):
    question = said("Please paint.")
    first = asked(stage, "paint", [question])
    assert (first.finish_reason, first.message.content) == ("tool_calls", "I paint.")
    [call] = first.message.tool_calls
    assert (call.type, call.function.name, json.loads(call.function.arguments)) == (
        *("function", "paint"),
        {"colour": "blue"},
    )
    assert stage.calls("paint") == [("paint", "waiting", None)]
    history = [question, message_of(first), *results(first, '{"painted": true}')]
    second = asked(stage, "paint", history)
    assert (second.finish_reason, second.message.content) == ("stop", "It is painted.")
    assert second.message.tool_calls is None
    assert stage.calls("paint") == [("paint", "done", {"painted": True})]
    third = asked(stage, "paint", [*history, message_of(second), THANKS])
    assert third.message.content == "You said: Thanks."
    assert [one["role"] for one in stage.messages("paint")] == [
        *("user", "assistant", "assistant", "tool", "assistant"),
        *("user", "assistant"),
    ]
    assert (stage.eras("paint"), stage.runs("paint")) == (1, 3)
    assert "LLMSetToolsFrame" not in stage.frames("paint")
    stage.create([THANKS], extra_body={"conversation": {"id": "paint", "append": True}})
    assert stage.frames("paint").count("LLMSetToolsFrame") == 1
    assert all("served_by" not in tool for tool in stage.context("paint")["tools"])


@pytest.mark.regression("gateway 134")
def test_a_client_that_sends_its_call_without_the_words_beside_it_has_edited_nothing(stage):
    """As Semantic Kernel does, whose streams end with one message that has all words of the answer."""
    question = said("Please paint.")
    first = asked(stage, "paint-silent", [question])
    history = [question, {**message_of(first), "content": None}, *results(first)]
    second = asked(stage, "paint-silent", history)
    joined = {"role": "assistant", "content": first.message.content + second.message.content}
    third = asked(stage, "paint-silent", [*history, joined, THANKS])
    assert (second.message.content, third.message.content) == ("It is painted.", "You said: Thanks.")
    assert [one.get("content") for one in stage.messages("paint-silent")][1:] == [
        *("I paint.", None, '"done"', "It is painted.", "Thanks.", "You said: Thanks."),
    ]
    # Spring AI remembers only the last words of each answer, without calls.
    history = [question, message_of(second), THANKS, message_of(third), THANKS]
    fourth = asked(stage, "paint-silent", history)
    assert (fourth.message.content, len(stage.messages("paint-silent"))) == ("You said: Thanks.", 9)
    assert (stage.eras("paint-silent"), stage.runs("paint-silent")) == (1, 4)


def test_a_call_streams_in_deltas_as_the_official_client_puts_them_together(stage):
    with stage.client.chat.completions.stream(
        model="owl",
        messages=[said("Please paint twice.")],
        tools=[PAINT],
        extra_headers={"Frameledger-Context": "paint-stream"},
    ) as stream:
        for _ in stream:
            pass
        choice = stream.get_final_completion().choices[0]
    assert choice.finish_reason == "tool_calls"
    assert [json.loads(call.function.arguments)["colour"] for call in choice.message.tool_calls] == [
        "blue",
        "red",
    ]
    stored = [one["tool_calls"][0]["id"] for one in stage.messages("paint-stream") if "tool_calls" in one]
    assert [call.id for call in choice.message.tool_calls] == stored


@pytest.mark.long
def test_calls_of_the_client_and_of_a_service_in_one_answer_go_on_together(stage):
    question = said("Please paint and look.")
    first = asked(stage, "paint-look", [question])
    assert first.finish_reason == "tool_calls"
    assert [call.function.name for call in first.message.tool_calls] == ["paint"]
    assert [(name, status) for name, status, _ in stage.calls("paint-look")] == [
        ("paint", "waiting"),
        ("train_position", "done"),
    ]
    second = asked(stage, "paint-look", [question, message_of(first), *results(first)])
    assert second.message.content in ("It is painted.", "By twenty-five minutes.")
    assert (stage.eras("paint-look"), stage.runs("paint-look")) == (1, 2)


def test_who_answers_one_of_two_calls_is_given_the_other_one_again(stage):
    question = said("Please paint twice.")
    first = asked(stage, "paint-half", [question])
    mine = results(first)
    for _ in range(2):
        half = asked(stage, "paint-half", [question, message_of(first), mine[0]])
        assert half.finish_reason == "tool_calls"
        assert [call.id for call in half.message.tool_calls] == [mine[1]["tool_call_id"]]
    assert stage.runs("paint-half") == 1
    second = asked(stage, "paint-half", [question, message_of(first), *mine])
    assert second.message.content == "It is painted."
    assert (stage.eras("paint-half"), stage.runs("paint-half")) == (1, 2)


def test_a_result_with_words_behind_it_is_answered_by_one_run(stage):
    question = said("Please paint.")
    first = asked(stage, "paint-words", [question])
    second = asked(stage, "paint-words", [question, message_of(first), *results(first), TRAIN])
    assert second.message.content == YES["content"]
    assert stage.calls("paint-words") == [("paint", "done", "done")]
    assert (stage.eras("paint-words"), stage.runs("paint-words")) == (1, 2)


@pytest.mark.long
def test_a_client_that_does_not_do_its_call_goes_on_and_may_do_it_later(stage):
    question = said("Please paint.")
    first = asked(stage, "paint-later", [question])
    second = asked(stage, "paint-later", [question, message_of(first), TRAIN])
    assert (second.message.content, second.finish_reason) == (YES["content"], "stop")
    assert stage.calls("paint-later") == [("paint", "waiting", None)]
    late = [question, message_of(first), *results(first), TRAIN, YES, THANKS]
    asked(stage, "paint-later", late)
    assert stage.calls("paint-later") == [("paint", "done", "done")]
    assert stage.eras("paint-later") == 1


def test_an_edit_cancels_a_call_whose_place_it_takes_away_and_keeps_one_that_was_done(stage):
    question = said("Please paint.")
    asked(stage, "paint-edited", [question])
    asked(stage, "paint-edited", [TRAIN])
    assert stage.calls("paint-edited") == [("paint", "cancelled", None)]
    assert stage.eras("paint-edited") == 2

    first = asked(stage, "paint-kept", [question])
    history = [question, message_of(first), *results(first)]
    second = asked(stage, "paint-kept", history)
    third = asked(stage, "paint-kept", [*history, message_of(second), THANKS])
    asked(stage, "paint-kept", [*history, message_of(second), TRAIN])
    assert third.message.content == "You said: Thanks."
    assert stage.eras("paint-kept") == 2
    assert [one["role"] for one in stage.messages("paint-kept")] == [
        *("user", "assistant", "assistant", "tool", "assistant"),
        *("user", "assistant"),
    ]


def test_two_clients_that_do_the_same_call_are_told_one_result(stage):
    question = said("Please paint.")
    first = asked(stage, "paint-raced", [question])
    for content in ("first", "second"):
        told = asked(stage, "paint-raced", [question, message_of(first), *results(first, content)])
        assert told.message.content == "It is painted."
    assert stage.calls("paint-raced") == [("paint", "done", "first")]
    assert (stage.eras("paint-raced"), stage.runs("paint-raced")) == (1, 2)


def made(name):
    return {"type": "function", "function": {"name": name}}


@pytest.mark.long
@pytest.mark.parametrize("name", ["sketch", "outline"])
def test_who_does_a_call_later_than_another_client_is_given_the_one_that_the_model_made_since(stage, name):
    """With and without text before that call."""
    context_id, tools = f"raced-{name}", [PAINT, made(name)]

    def ask(messages):
        return stage.create(messages, tools=tools, extra_headers={"Frameledger-Context": context_id}).choices[
            0
        ]

    question = said(f"Please {name}.")
    first = ask([question])
    mine = ask([question, message_of(first), *results(first, "mine")])
    theirs = ask([question, message_of(first), *results(first, "theirs")])
    assert (theirs.finish_reason, message_of(theirs)["tool_calls"]) == (
        *("tool_calls",),
        message_of(mine)["tool_calls"],
    )
    assert stage.calls(context_id) == [(name, "done", "mine"), ("paint", "waiting", None)]
    assert (stage.eras(context_id), stage.runs(context_id)) == (1, 2)
    last = ask([question, message_of(first), *results(first, "mine"), message_of(mine), *results(mine)])
    assert last.message.content == "It is painted."
    assert stage.calls(context_id) == [(name, "done", "mine"), ("paint", "done", "done")]
    assert (stage.eras(context_id), stage.runs(context_id)) == (1, 3)


def test_a_result_beside_a_call_that_waits_for_a_person_is_kept_and_its_client_told_whom_it_waits_for(stage):
    question = said("Keep me a seat and a box.")
    first = asked(stage, "paint-person", [question])
    assert [call.function.name for call in first.message.tool_calls] == ["paint"]
    history = [question, message_of(first), *results(first)]
    for headers in ({}, {}, {"X-Stainless-Retry-Count": "1"}):
        with pytest.raises(openai.ConflictError, match="keep_seat"):
            stage.client.with_options(max_retries=0).chat.completions.create(
                model="frameledger",
                messages=history,
                tools=[PAINT],
                extra_headers={"Frameledger-Context": "paint-person", **headers},
            )
    statuses = {name: status for name, status, _ in stage.calls("paint-person")}
    assert statuses == {"keep_seat": "waiting", "paint": "done"}
    assert (stage.eras("paint-person"), stage.runs("paint-person")) == (1, 1)
    [(seat, version)] = stage.rows(
        "SELECT tool_call_id, requested_version FROM tool_calls WHERE context_id = 'paint-person' "
        "AND function_name = 'keep_seat'"
    )
    about = {"function_name": "keep_seat", "tool_call_id": seat, "opened_version": version}
    stage.publish("paint-person", type="FunctionCallResultFrame", result="yes", **about)
    again = asked(stage, "paint-person", history, headers={"X-Stainless-Retry-Count": "2"})
    assert again.message.content in ("Your seat is kept.", "It is painted.")
    assert (stage.eras("paint-person"), stage.runs("paint-person")) == (1, 2)


def test_a_result_that_the_conversation_has_no_room_for_is_refused_by_its_limit(stage):
    question = said("Please paint.")
    first = asked(stage, "paint-full", [question])
    stage.publish("paint-full", type="LLMSetLimitsFrame", context_bytes=2_000)
    with pytest.raises(openai.BadRequestError, match="context_bytes") as refused:
        stage.client.with_options(max_retries=0).chat.completions.create(
            model="frameledger",
            messages=[question, message_of(first), *results(first, "x" * 4_000)],
            tools=[PAINT],
            extra_headers={"Frameledger-Context": "paint-full"},
        )
    assert (refused.value.code, stage.runs("paint-full")) == ("context_full", 1)


@pytest.mark.long
@pytest.mark.parametrize("kept", ["Please paint.", "We talk of something else."])
def test_a_result_whose_call_somebody_took_out_of_the_history_is_said_as_its_client_has_it(stage, kept):
    """Only the call was removed, or the messages before it too."""
    context_id = f"paint-dropped-{len(kept)}"
    question = said("Please paint.")
    first = asked(stage, context_id, [question])
    stage.publish(context_id, type="LLMMessagesUpdateFrame", messages=[said(kept)], run_llm=False)
    second = asked(stage, context_id, [question, message_of(first), *results(first)])
    assert second.message.content == "It is painted."
    messages = stage.messages(context_id)
    assert is_valid(messages)
    assert [one["content"] for one in messages if one["role"] == "tool"] == ["done"]
    third = asked(
        stage, context_id, [question, message_of(first), *results(first), message_of(second), THANKS]
    )
    assert third.message.content == "You said: Thanks."
    assert stage.runs(context_id) == 3


def test_a_call_that_somebody_took_out_of_the_history_once_it_was_done_stays_out(stage):
    question = said("Please paint.")
    first = asked(stage, "paint-pruned", [question])
    history = [question, message_of(first), *results(first)]
    second = asked(stage, "paint-pruned", history)
    rest = [
        question,
        said("I paint.") | {"role": "assistant"},
        said("It is painted.") | {"role": "assistant"},
    ]
    stage.publish("paint-pruned", type="LLMMessagesUpdateFrame", messages=rest, run_llm=False)
    asked(stage, "paint-pruned", [*history, message_of(second), THANKS])
    assert [one["role"] for one in stage.messages("paint-pruned")] == [
        *("user", "assistant", "assistant"),
        *("user", "assistant"),
    ]
    assert stage.eras("paint-pruned") == 2


@pytest.mark.parametrize("headers", [{"Idempotency-Key": "paint-1"}, {"X-Stainless-Retry-Count": "1"}])
def test_the_same_result_sent_again_is_answered_once(stage, headers):
    context_id = f"paint-again-{next(iter(headers)).lower()}"
    question = said("Please paint.")
    first = asked(stage, context_id, [question])
    body = [question, message_of(first), *results(first)]
    for _ in range(3):
        assert asked(stage, context_id, body, headers=headers).message.content == "It is painted."
    assert (stage.eras(context_id), stage.runs(context_id)) == (1, 2)


def test_a_call_that_an_interruption_stopped_is_cancelled_by_the_next_request_unless_it_answers(stage):
    question = said("Please paint.")
    first = asked(stage, "paint-cut", [question])
    frames = f"{stage.base_url}/v1/contexts/paint-cut/frames"
    httpx.post(frames, json={"type": "InterruptionFrame"}, timeout=ON_SERVERS).raise_for_status()
    asked(stage, "paint-cut", [question, message_of(first), TRAIN])
    assert stage.calls("paint-cut") == [("paint", "cancelled", None)]
    assert stage.eras("paint-cut") == 1


@pytest.mark.parametrize("number", first(1, [2, 1, 3]))
def test_a_gateway_that_is_killed_behind_any_frame_of_a_request_leaves_nothing_half_said(stage, number):
    context_id = f"paint-killed-{number}"
    question = said("Please paint.")
    first = asked(stage, context_id, [question])
    # The request becomes three frames: other functions, the result, and a message.
    body = {
        "model": "frameledger",
        "conversation": context_id,
        "messages": [question, message_of(first), *results(first), TRAIN],
        "tools": [PAINT, {"type": "function", "function": {"name": "erase"}}],
    }
    assert killed(stage.settings, "openai", context_id, json.dumps(body).encode(), number)
    assert is_valid(stage.messages(context_id))
    assert [status for _, status, _ in stage.calls(context_id)] == ["waiting" if number == 1 else "done"]
    sent = {"content": json.dumps(body), "headers": {"Content-Type": "application/json"}}
    for _ in range(2):
        sent["headers"]["X-Stainless-Retry-Count"] = "1"
        answer = httpx.post(f"{stage.base_url}/v1/chat/completions", **sent, timeout=ON_SERVERS)
        assert answer.json()["choices"][0]["message"]["content"] == YES["content"]
        assert stage.calls(context_id) == [("paint", "done", "done")]
        assert (stage.eras(context_id), stage.runs(context_id)) == (1, 2)
    assert stage.frames(context_id).count("FunctionCallResultFrame") == 1
    assert is_valid(stage.messages(context_id))


@pytest.mark.long
@pytest.mark.parametrize("number", [1, 2])
def test_a_gateway_that_is_killed_in_an_edit_leaves_a_call_cancelled_or_not_touched(stage, number):
    context_id = f"paint-edit-killed-{number}"
    asked(stage, context_id, [said("Please paint.")])
    body = {"model": "frameledger", "conversation": context_id, "messages": [TRAIN], "tools": [PAINT]}
    assert killed(stage.settings, "openai", context_id, json.dumps(body).encode(), number)
    assert is_valid(stage.messages(context_id))
    sent = {"Content-Type": "application/json", "X-Stainless-Retry-Count": "1"}
    url = f"{stage.base_url}/v1/chat/completions"
    answer = httpx.post(url, content=json.dumps(body), headers=sent, timeout=ON_SERVERS)
    assert answer.json()["choices"][0]["message"]["content"] == YES["content"]
    assert stage.calls(context_id) == [("paint", "cancelled", None)]
    assert (stage.eras(context_id), stage.runs(context_id)) == (2, 2)


def test_a_function_that_no_model_can_be_offered_is_refused_by_its_place(stage):
    with pytest.raises(openai.BadRequestError) as refused:
        stage.create([TRAIN], tools=[{"type": "function", "function": {"name": "two words"}}])
    assert refused.value.param == "tools[0].name"
