"""Responses and their events, made of the frames of an answer, as the official client reads them."""

import json
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import pytest
from openai._models import construct_type_unchecked
from openai._streaming import SSEDecoder
from openai.types.responses import Response

from frameledger.frames import (
    ErrorFrame,
    InterruptionFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    Usage,
)
from frameledger_services.gateway.openai.answer import Answer
from frameledger_services.gateway.openai.question import AskedQuestion
from frameledger_services.gateway.openai_responses.response import ResponseWriter
from frameledger_services.gateway.openai_responses.response_events import PieceByPiece, ResponseEvents
from frameledger_services.store.answered_requests import AnsweredRequest
from frameledger_services.store.client_calls import ClientCall

CALL = ClientCall("c1", "paint", {"colour": "blue"}, 5, True, False, None, None)


@dataclass
class Followed:
    """An answer that is followed."""

    question: AskedQuestion = field(default_factory=lambda: AskedQuestion("talk", 3))
    answer: Answer = field(default_factory=lambda: PieceByPiece(3))
    calls: list[ClientCall] = field(default_factory=list)
    is_over: bool = False


def start(run_id="r1", attempt=1):
    return LLMFullResponseStartFrame(run_id=run_id, attempt=attempt, context_version=3, model="owl")


def says(text, run_id="r1", attempt=1):
    return LLMTextFrame(text=text, run_id=run_id, attempt=attempt)


def end(reason="stop", run_id="r1", **more):
    return LLMFullResponseEndFrame(run_id=run_id, finish_reason=reason, **more)


def asked(**settings):
    return AnsweredRequest(3, datetime(2026, 1, 2, tzinfo=UTC), {}, None, None, None, settings, ())


def read(data):
    return [json.loads(one.data) for one in SSEDecoder().iter_bytes(iter([data]))]


def sent(*chunks, calls=(), starting_after=-1):
    """The events, where the frames came in these chunks."""
    followed = Followed(calls=list(calls))
    events = ResponseEvents(ResponseWriter(asked(), followed), followed.answer, starting_after)
    data = events.begin()
    for chunk in chunks:
        for frame in chunk:
            followed.answer.take(frame)
        data += events.news()
    followed.is_over = True
    return read(data + events.end())


def response(*frames, calls=(), is_over=True, request=None):
    followed = Followed(answer=Answer(3), calls=list(calls), is_over=is_over)
    for frame in frames:
        followed.answer.take(frame)
    return json.loads(ResponseWriter(request or asked(), followed).whole())


ANSWER = [start(), says("One "), says("two"), says(" three."), end()]


def test_events_are_the_same_however_the_frames_come():
    at_once, one_by_one = sent(ANSWER), sent(*([frame] for frame in ANSWER))
    assert at_once[2:] == one_by_one[2:]
    deltas = [one["delta"] for one in at_once if one["type"] == "response.output_text.delta"]
    assert deltas == ["One", " two", " three."]
    assert [one["sequence_number"] for one in at_once] == list(range(11))
    assert sent(ANSWER, starting_after=5) == at_once[6:]
    assert sent(ANSWER, starting_after=99) == []


@pytest.mark.regression("gateway 19")
def test_the_first_events_are_the_same_however_much_was_answered_before_them():
    def begun(*frames):
        followed = Followed()
        for frame in frames:
            followed.answer.take(frame)
        return read(ResponseEvents(ResponseWriter(asked(), followed), followed.answer).begin())

    usage = Usage(input_tokens=9, output_tokens=4)
    answers = [[start()], [start(), says("One."), end(usage=usage)], [start(), ErrorFrame(fatal=True)]]
    assert [begun(*frames) for frames in answers] == [begun()] * len(answers)


@pytest.mark.regression("gateway 138")
def test_the_time_of_a_response_is_in_whole_seconds():
    """Some clients read it as an integer, as LiteLLM's proxy does."""
    request = replace(asked(), logged_at=datetime(2026, 1, 2, microsecond=625_000, tzinfo=UTC))
    created_at = response(request=request)["created_at"]
    assert (type(created_at), created_at) == (int, 1_767_312_000)


def test_the_last_event_has_the_response_as_it_is_read_later():
    last = sent(ANSWER, calls=[CALL])[-1]
    assert (last["type"], last["response"]) == ("response.completed", response(*ANSWER, calls=[CALL]))
    [message, call] = last["response"]["output"]
    assert message["content"][0]["text"] == "One two three."
    assert (call["name"], call["call_id"], json.loads(call["arguments"])) == (
        "paint",
        "c1",
        {"colour": "blue"},
    )
    assert len({message["id"], call["id"]}) == 2
    read_by_client = construct_type_unchecked(type_=Response, value=last["response"])
    assert read_by_client.output_text == "One two three."


def test_without_a_word_there_is_no_message():
    events = sent([start(), end("tool_calls")], calls=[CALL])
    assert events[-1]["response"]["output"] == [
        events[2]["item"] | {"arguments": '{"colour":"blue"}', "status": "completed"}
    ]
    assert {one.get("output_index", 0) for one in events} == {0}


@pytest.mark.parametrize(
    ("frames", "status", "last"),
    [
        ([start(), says("One"), end("length")], "incomplete", "response.incomplete"),
        ([start(), says("One"), end("content_filter")], "incomplete", "response.incomplete"),
        ([start(), says("One"), InterruptionFrame()], "cancelled", "response.incomplete"),
        (
            [
                start(),
                says("One"),
                ErrorFrame(run_id="r1", message="No.", code="context_refused"),
                end("error"),
            ],
            "failed",
            "response.failed",
        ),
        ([start(), says("One"), end("tool_calls")], "completed", "response.completed"),
        ([], "incomplete", "response.incomplete"),
        ([start(), says("One")], "incomplete", "response.incomplete"),
    ],
)
def test_how_an_answer_ended_is_its_status(frames, status, last):
    assert response(*frames)["status"] == status
    assert sent(frames)[-1]["type"] == last
    assert sent(frames)[-1]["response"]["status"] == status


def test_why_there_is_no_more_of_it_is_said():
    assert response(start(), end("length"))["incomplete_details"] == {"reason": "max_output_tokens"}
    failed = response(start(), ErrorFrame(run_id="r1", message="No.", code="provider_error"), end("error"))
    assert failed["error"] == {"code": "server_error", "message": "No. (provider_error)"}
    assert failed["incomplete_details"] is None
    going_on = response(start(), says("One"), is_over=False)
    assert (going_on["status"], going_on["output"][0]["status"]) == ("in_progress", "in_progress")


@pytest.mark.regression("gateway 27")
def test_a_worker_that_dies_takes_nothing_back_of_what_was_sent():
    again = [start(), says("One "), says("two"), start(attempt=2), says("One two three.", attempt=2), end()]
    assert (
        "".join(one["delta"] for one in sent(again) if "output_text.delta" in one["type"]) == "One two three."
    )
    others = [start(), says("One "), says("two"), start(attempt=2), says("Well.", attempt=2), end()]
    followed = Followed()
    for frame in others:
        followed.answer.take(frame)
    assert followed.answer.failure.code == "answer_superseded"
    events = ResponseEvents(ResponseWriter(asked(), followed), followed.answer)
    error = {"message": followed.answer.failure.message, "code": "answer_superseded", "param": None}
    [*_, last] = read(events.broken({"error": error}))
    # The stream is void, and the response is not: who reads it has the answer that counts.
    assert (last["type"], last["code"]) == ("error", "answer_superseded")
    whole = response(*others)
    assert (whole["status"], whole["output"][0]["content"][0]["text"]) == ("completed", "Well.")


def test_a_stream_that_breaks_off_ends_with_an_error():
    followed = Followed()
    events = ResponseEvents(ResponseWriter(asked(), followed), followed.answer)
    about = {"message": "The gateway is stopping.", "code": "draining", "param": None, "type": "server_error"}
    [event] = read(events.broken({"error": about}))
    assert (event["type"], event["code"], event["sequence_number"]) == ("error", "draining", 0)


def test_tokens_are_counted_if_a_provider_counts_them():
    used = Usage(input_tokens=3, output_tokens=2, cache_read_tokens=1, reasoning_tokens=1)
    assert response(start(), end(usage=used))["usage"] == {
        "input_tokens": 3,
        "input_tokens_details": {"cached_tokens": 1, "cache_write_tokens": 0},
        "output_tokens": 2,
        "output_tokens_details": {"reasoning_tokens": 1},
        "total_tokens": 5,
    }
    assert response(start(), end())["usage"] is None


@pytest.mark.parametrize(
    "settings",
    [
        {"extra": 5},
        {"extra": {"response_format": "x", "reasoning_effort": []}},
        {"extra": {"response_format": {}}},
    ],
)
def test_a_response_is_written_whatever_settings_somebody_gave_the_conversation(settings):
    request = AnsweredRequest(
        3, datetime(2026, 1, 2, tzinfo=UTC), {}, None, None, None, settings, (5, {"served_by": "client"})
    )
    assert response(start(), end(), request=request)["status"] == "completed"
