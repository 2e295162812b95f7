"""OpenAI's Responses API: responses are continued by their ids, read again, streamed and cancelled."""

import json
import time
from contextlib import suppress

import httpx
import openai
import pytest
from tests.bounds import ON_SERVERS
from tests.support.openai_stage import (
    THANKS,
    TRAIN,
    YES,
    is_valid,
    openai_stage,  # noqa: F401  # a fixture
    said,
)
from tests.support.tiers import first

from frameledger_services.gateway.openai_responses.response_ids import ResponseId

PAINT_HERE = {"type": "function", "name": "paint", "parameters": {"type": "object", "properties": {}}}


def respond(stage, text, **more):
    return stage.client.responses.create(model="frameledger", input=text, **more)


def test_a_response_is_continued_by_its_id_and_can_be_read_again(stage):
    first = respond(
        stage,
        TRAIN["content"],
        instructions="Be brief.",
        temperature=0.5,
        metadata={"desk": "4"},
        conversation="resp/1",
    )
    assert (first.status, first.output_text) == ("completed", YES["content"])
    assert (first.conversation.id, first.instructions, first.metadata) == (
        "resp/1",
        "Be brief.",
        {"desk": "4"},
    )
    assert (first.usage.input_tokens, first.usage.output_tokens, first.usage.total_tokens) == (9, 4, 13)
    assert stage.stored_settings("resp/1") == {"temperature": 0.5, "system_instruction": "Be brief."}

    second = respond(stage, [{"role": "user", "content": "Thanks."}], previous_response_id=first.id)
    assert (second.output_text, second.previous_response_id) == ("You said: Thanks.", first.id)
    # Neither instructions nor settings are carried over.
    assert stage.stored_settings("resp/1") == {}
    assert stage.contents("resp/1") == [
        "Is there a night train?",
        YES["content"],
        "Thanks.",
        "You said: Thanks.",
    ]
    assert (stage.eras("resp/1"), stage.runs("resp/1")) == (1, 2)

    # Later frames are not part of a response, and an interruption does not affect a complete one.
    stage.publish("resp/1", type="InterruptionFrame")
    assert stage.client.responses.retrieve(second.id) == second
    stage.create([said("Hm.")], extra_body={"conversation": {"id": "resp/1", "append": True}})
    for one in (first, second):
        assert stage.client.responses.retrieve(one.id) == one


def test_an_instruction_that_another_program_gave_a_conversation_stays(stage):
    settings = {"system_instruction": "You are a guard."}
    stage.publish("resp-guard", type="LLMUpdateSettingsFrame", settings=settings)
    respond(stage, "Hello.", conversation="resp-guard")
    assert stage.stored_settings("resp-guard") == settings
    respond(stage, "Hello.", conversation="resp-guard", instructions="Be brief.")
    respond(stage, "Hello.", conversation="resp-guard")
    assert stage.stored_settings("resp-guard") == {}


def test_a_response_streams_in_events_which_are_the_same_when_it_is_read_again(stage):
    with stage.client.responses.stream(model="owl", input="Are we late?") as stream:
        events = list(stream)
        final = stream.get_final_response()
    assert [one.type.removeprefix("response.") for one in events] == [
        *("created", "in_progress", "output_item.added", "content_part.added"),
        *["output_text.delta"] * (len(events) - 8),
        *("output_text.done", "content_part.done", "output_item.done", "completed"),
    ]
    assert [one.sequence_number for one in events] == list(range(len(events)))
    text = "".join(one.delta for one in events if one.type == "response.output_text.delta")
    assert text == final.output_text == "I look.\n\nBy twenty-five minutes."
    assert stage.client.responses.retrieve(final.id).output_text == text

    def numbers(**more):
        with stage.client.responses.retrieve(final.id, stream=True, **more) as again:
            return [(one.sequence_number, one.type, getattr(one, "delta", None)) for one in again]

    every = [(one.sequence_number, one.type, getattr(one, "delta", None)) for one in events]
    assert numbers() == every
    assert numbers(starting_after=4) == every[5:]
    with pytest.raises(openai.BadRequestError, match="stream=true"):
        stage.client.responses.retrieve(final.id, extra_query={"starting_after": 4})


def test_a_function_of_the_client_is_called_in_a_response_and_its_output_goes_on(stage):
    first = respond(stage, "Please paint.", tools=[PAINT_HERE], conversation="resp-paint")
    assert (first.status, first.output_text) == ("completed", "I paint.")
    call = first.output[1]
    assert (call.type, call.name, json.loads(call.arguments)) == (
        "function_call",
        "paint",
        {"colour": "blue"},
    )
    assert [tool.name for tool in first.tools] == ["paint"]
    output = {"type": "function_call_output", "call_id": call.call_id, "output": '{"painted": true}'}
    with stage.client.responses.stream(
        model="owl", input=[output], previous_response_id=first.id, tools=[PAINT_HERE]
    ) as stream:
        second = stream.get_final_response()
    assert second.output_text == "It is painted."
    assert stage.calls("resp-paint") == [("paint", "done", {"painted": True})]
    third = respond(stage, "Thanks.", previous_response_id=second.id)
    assert third.output_text == "You said: Thanks."
    assert (stage.eras("resp-paint"), stage.runs("resp-paint")) == (1, 3)
    assert stage.client.responses.retrieve(first.id) == first
    assert stage.client.responses.retrieve(second.id).output_text == second.output_text

    # Another request that continues the first response also has the call as done, because its result is stored.
    again = respond(stage, [output, said("Nice.")], previous_response_id=first.id)
    assert again.output_text == "You said: Nice."
    assert stage.calls("resp-paint") == [("paint", "done", {"painted": True})]
    assert is_valid(stage.messages("resp-paint"))

    # The same with a resent history that refers to the items of the response.
    told = [{"type": "item_reference", "id": one.id} for one in first.output]
    anew = respond(stage, [said("Please paint."), *told, output, said("Thanks.")], conversation="resp-told")
    assert anew.output_text == "You said: Thanks."
    assert [one["role"] for one in stage.messages("resp-told")] == [
        *("user", "assistant", "assistant", "tool", "user", "assistant"),
    ]
    with pytest.raises(openai.NotFoundError) as unknown:
        respond(stage, [said("Hm."), {"type": "item_reference", "id": "rs_1"}])
    assert (unknown.value.param, unknown.value.code) == ("input[1]", "item_not_found")


def call_of(response):
    call = response.output[1]
    return {"type": "function_call", "call_id": call.call_id, "name": call.name, "arguments": call.arguments}


AGAIN = {
    "references": lambda first: [{"type": "item_reference", "id": first.output[0].id}, call_of(first)],
    "items": lambda first: [one.model_dump(exclude_none=True) for one in first.output],
    "texts": lambda first: [{"role": "assistant", "content": first.output_text}, call_of(first)],
}
"""The forms in which the AI SDK, LangChain and Pydantic AI send the first response back."""


@pytest.mark.regression("gateway 120")
@pytest.mark.parametrize("form", first(1, AGAIN))
def test_a_framework_that_resends_the_history_to_the_conversation_that_it_names_repeats_nothing(stage, form):
    context_id = f"resp-{form}-again"
    history = [said("Please paint.")]
    first = respond(stage, history, tools=[PAINT_HERE], conversation=context_id)
    call_id = first.output[1].call_id
    output = {"type": "function_call_output", "call_id": call_id, "output": '{"painted": true}'}
    history += [*AGAIN[form](first), output]
    second = respond(stage, history, tools=[PAINT_HERE], conversation=context_id)
    assert second.output_text == "It is painted."
    history += [{"role": "assistant", "content": second.output_text}, said("Thanks.")]
    third = respond(stage, history, tools=[PAINT_HERE], conversation=context_id)
    assert third.output_text == "You said: Thanks."
    assert [one["role"] for one in stage.messages(context_id)] == [
        *("user", "assistant", "assistant", "tool", "assistant", "user", "assistant"),
    ]
    assert (stage.eras(context_id), stage.runs(context_id)) == (1, 3)

    # One that is edited takes the place of what was said, as with chat completions.
    history[-1] = said("No thanks.")
    respond(stage, history, tools=[PAINT_HERE], conversation=context_id)
    *before, question, answer = stage.messages(context_id)
    assert (question["content"], answer["content"]) == ("No thanks.", "You said: No thanks.")
    assert (stage.eras(context_id), len(before)) == (2, 5)


@pytest.mark.regression("gateway 129")
def test_an_agent_that_starts_each_run_anew_in_one_conversation_calls_a_function_once(stage):
    """As LlamaIndex does with its agent for responses: what it resends has not the conversation's beginning."""
    brief = {"role": "developer", "content": "Be brief."}
    for question in ("Hello.", "Please paint.", "Please paint."):
        history = [brief, said(question)]
        first = respond(stage, history, tools=[PAINT_HERE], conversation="resp-runs")
        if question == "Hello.":
            continue
        call_id = first.output[1].call_id
        output = {"type": "function_call_output", "call_id": call_id, "output": '{"painted": true}'}
        history += [*AGAIN["items"](first), output]
        second = respond(stage, history, tools=[PAINT_HERE], conversation="resp-runs")
        assert (second.output_text, len(second.output)) == ("It is painted.", 1)
    assert stage.calls("resp-runs") == [("paint", "done", {"painted": True})] * 2
    assert [one["role"] for one in stage.messages("resp-runs")] == [
        *("developer", "user", "assistant"),
        *("developer", "user", "assistant", "assistant", "tool", "assistant") * 2,
    ]
    assert (stage.eras("resp-runs"), stage.runs("resp-runs")) == (1, 5)


@pytest.mark.regression("gateway 135")
def test_what_a_previous_response_has_already_is_not_asked_again(stage):
    """As Semantic Kernel's agent sends its run: from its question on, without calls, with the previous response."""
    start = respond(stage, "Hello.", conversation="resp-run")
    history = [said("Please paint.")]
    first = respond(stage, history, tools=[PAINT_HERE], previous_response_id=start.id)
    output = {"type": "function_call_output", "call_id": first.output[1].call_id, "output": "painted"}
    history += [{"role": "assistant", "content": first.output_text}, output]
    second = respond(stage, history, tools=[PAINT_HERE], previous_response_id=first.id)
    assert (second.output_text, len(second.output)) == ("It is painted.", 1)
    assert [one["role"] for one in stage.messages("resp-run")] == [
        *("user", "assistant", "user", "assistant", "assistant", "tool", "assistant"),
    ]
    assert (stage.eras("resp-run"), stage.runs("resp-run")) == (1, 3)


def test_a_call_streams_in_events_as_the_official_client_reads_them(stage):
    with stage.client.responses.stream(model="owl", input="Please paint.", tools=[PAINT_HERE]) as stream:
        events = [one for one in stream if "function_call" in one.type or "output_item" in one.type]
        [_, call] = stream.get_final_response().output
    assert [one.type.removeprefix("response.") for one in events] == [
        *("output_item.added", "output_item.done", "output_item.added"),
        *("function_call_arguments.delta", "function_call_arguments.done", "output_item.done"),
    ]
    assert events[-2].arguments == call.arguments == events[-3].snapshot
    assert {one.output_index for one in events[2:]} == {1}


def test_an_older_response_is_continued_from_where_it_ended(stage):
    first = respond(stage, "One.", conversation="resp-fork")
    second = respond(stage, "Two.", previous_response_id=first.id)
    other = respond(stage, "Three.", previous_response_id=first.id)
    assert stage.contents("resp-fork") == ["One.", "You said: One.", "Three.", "You said: Three."]
    again = respond(stage, "Four.", previous_response_id=second.id)
    assert stage.contents("resp-fork") == [
        *("One.", "You said: One.", "Two.", "You said: Two."),
        *("Four.", "You said: Four."),
    ]
    assert stage.eras("resp-fork") == 3
    for one in (first, second, other, again):
        assert stage.client.responses.retrieve(one.id) == one


def test_the_same_request_for_a_response_again_is_answered_once(stage):
    first = respond(stage, "One.", conversation="resp-again")
    body = {"model": "owl", "input": "Two.", "previous_response_id": first.id}
    url = f"{stage.base_url}/v1/responses"

    def post(**headers):
        return httpx.post(url, json=body, headers=headers, timeout=ON_SERVERS)

    sent = post()
    assert sent.status_code == 200, sent.text
    assert post(**{"X-Stainless-Retry-Count": "1"}).json() == sent.json()
    keyed = [post(**{"Idempotency-Key": "resp-1"}).json() for _ in range(2)]
    assert keyed[0] == keyed[1]
    assert keyed[0]["id"] != sent.json()["id"]
    assert stage.runs("resp-again") == 3
    body["input"] = "Three."
    assert post(**{"Idempotency-Key": "resp-1"}).status_code == 422
    assert stage.runs("resp-again") == 3


def test_a_response_that_goes_on_is_cancelled_and_then_continued(stage):
    client = stage.client.with_options(max_retries=0)
    with client.responses.create(model="owl", input="Please count.", stream=True) as stream:
        first = next(iter(stream)).response
        context_id = first.conversation.id
        stage.until(
            "SELECT count(*) = 1 FROM runs WHERE context_id = %s AND first_text_at IS NOT NULL", context_id
        )
        assert client.responses.retrieve(first.id).status == "in_progress"
        with pytest.raises(openai.ConflictError, match="being answered"):
            client.responses.create(model="owl", input="Hm.", previous_response_id=first.id)
        cancelled = client.responses.cancel(first.id)
        *_, last = stream
    assert cancelled.status == "cancelled"
    assert (last.type, last.response.status) == ("response.incomplete", "cancelled")
    assert "number-1" in cancelled.output_text
    assert "number-3999" not in cancelled.output_text
    assert client.responses.cancel(first.id) == client.responses.retrieve(first.id) == cancelled
    assert stage.frames(context_id).count("InterruptionFrame") == 1
    again = client.responses.create(model="owl", input="Thanks.", previous_response_id=first.id)
    assert again.output_text == "You said: Thanks."
    assert stage.eras(context_id) == 1
    # A complete response is not interrupted.
    assert client.responses.cancel(again.id) == again
    assert stage.frames(context_id).count("InterruptionFrame") == 1


def test_a_client_that_leaves_a_response_interrupts_it_and_one_that_looks_on_does_not(stage):
    with stage.client.responses.create(model="owl", input="Please count.", stream=True) as stream:
        first = next(iter(stream)).response
        with stage.client.responses.retrieve(first.id, stream=True) as looking:
            assert next(iter(looking)).type == "response.created"
        assert stage.client.responses.retrieve(first.id).status == "in_progress"
    stage.until("SELECT status = 'interrupted' FROM runs WHERE context_id = %s", first.conversation.id)
    assert stage.client.responses.retrieve(first.id).status == "cancelled"


def test_responses_that_fail_or_are_cut_off_say_why(stage):
    short = respond(stage, "Keep it short.")
    assert (short.status, short.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    with pytest.raises(openai.BadRequestError, match="That is too much"):
        respond(stage, "Will you break?", conversation="resp-broken")
    last = last_event_of_half(stage)
    assert (last.type, last.response.error.code) == ("response.failed", "invalid_prompt")
    found = stage.client.responses.retrieve(last.response.id)
    assert (found.status, found.output_text) == ("failed", "So far so")


def last_event_of_half(stage):
    """Returns the last event of a response that fails in the middle. It is repeated as in `shown_before_the_error`."""
    until = time.monotonic() + ON_SERVERS
    while True:
        assert time.monotonic() < until
        with (
            suppress(openai.BadRequestError),
            stage.client.responses.create(model="owl", input="Only half of it.", stream=True) as stream,
        ):
            return list(stream)[-1]


def test_what_no_response_can_be_made_of_is_an_error_of_openais_client(stage):
    client = stage.client.with_options(max_retries=0)
    ask = client.responses.create
    for response_id in ("resp_1", "1", str(ResponseId("no-such-conversation", 1)), "resp_" + "a" * 300):
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(response_id)
        with pytest.raises(openai.NotFoundError) as unknown:
            ask(model="owl", input="Hm.", previous_response_id=response_id)
        assert (unknown.value.param, unknown.value.code) == (
            *("previous_response_id", "previous_response_not_found"),
        )
    # The id of a frame that requested no response names none.
    stage.publish("resp-none", type="LLMMessagesAppendFrame", messages=[THANKS])
    with pytest.raises(openai.NotFoundError, match="no response"):
        client.responses.retrieve(str(ResponseId("resp-none", 1)))

    first = ask(model="owl", input="Hm.", conversation="resp-erased")
    httpx.delete(f"{stage.base_url}/v1/contexts/resp-erased", params={"why": "asked"}, timeout=ON_SERVERS)
    stage.until("SELECT count(*) = 0 FROM contexts WHERE context_id = 'resp-erased'")
    for call in (
        lambda: client.responses.retrieve(first.id),
        lambda: client.responses.cancel(first.id),
        lambda: ask(model="owl", input="Hm.", previous_response_id=first.id),
    ):
        with pytest.raises(openai.APIStatusError) as erased:
            call()
        assert (erased.value.status_code, erased.value.code) == (410, "erased")
