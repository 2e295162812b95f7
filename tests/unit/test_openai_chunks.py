"""Chunks as the official client reads them."""

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime

from openai._streaming import SSEDecoder
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from frameledger.frames import LLMFullResponseEndFrame, LLMFullResponseStartFrame, LLMTextFrame, Usage
from frameledger_services.gateway.openai import chunks, request
from frameledger_services.gateway.openai.answer import Answer
from frameledger_services.gateway.openai.answer_stream import HEARTBEAT
from frameledger_services.gateway.openai.question import AskedQuestion
from frameledger_services.store.client_calls import ClientCall


@dataclass
class Followed:
    """An answer that was followed to its end."""

    question: AskedQuestion = field(default_factory=lambda: AskedQuestion("talk", 3))
    answer: Answer = field(default_factory=lambda: Answer(3))
    version: int = 9
    calls: list[ClientCall] = field(default_factory=list)
    began_at: datetime | None = datetime(2026, 1, 2, tzinfo=UTC)


def answered(reason="stop", used=None, **parameters):
    followed = Followed()
    for frame in (
        LLMFullResponseStartFrame(run_id="r1", context_version=3, model="owl"),
        LLMTextFrame(text="Yes.", run_id="r1"),
        LLMFullResponseEndFrame(run_id="r1", finish_reason=reason, usage=used),
    ):
        followed.answer.take(frame)
    wanted = request.read(
        json.dumps({"messages": [{"role": "user", "content": "Hi"}], **parameters}).encode()
    )
    return chunks.Writer(wanted, followed)


def read(*pieces):
    return [one.data for one in SSEDecoder().iter_bytes(iter([b"".join(pieces)]))]


def test_a_heartbeat_between_events_with_an_id_is_no_event():
    writer = answered()
    events = read(writer.begin(), HEARTBEAT, writer.news(), HEARTBEAT, writer.end())
    assert events[-1] == "[DONE]"
    found = [ChatCompletionChunk.model_validate_json(one) for one in events[:-1]]
    assert [one.choices[0].delta.content for one in found] == ["", "Yes.", None]
    assert found[-1].choices[0].finish_reason == "stop"
    assert {one.id for one in found} == {"chatcmpl-r1"}
    assert {one.created for one in found} == {1767312000}


def test_usage_comes_at_the_end_if_it_is_asked_for():
    used = Usage(input_tokens=3, output_tokens=2, cache_write_tokens=2, reasoning_tokens=1)
    *_, last, _done = read(answered(used=used, stream=True, stream_options={"include_usage": True}).end())
    chunk = ChatCompletionChunk.model_validate_json(last)
    assert chunk.choices == []
    assert chunk.usage.total_tokens == 5
    assert chunk.usage.prompt_tokens_details.cache_write_tokens == 2
    assert chunk.usage.completion_tokens_details.reasoning_tokens == 1
    assert len(read(answered(used=used, stream=True).end())) == 2
    # A provider that counts nothing is not said to have counted to zero.
    assert json.loads(read(answered(stream_options={"include_usage": True}).end())[1])["usage"] is None


def test_the_whole_answer_is_a_completion():
    whole = ChatCompletion.model_validate_json(answered("length").whole())
    assert (whole.model, whole.choices[0].message.content) == ("owl", "Yes.")
    assert whole.choices[0].finish_reason == "length"
    called = ChatCompletion.model_validate_json(answered("tool_calls").whole())
    assert called.choices[0].finish_reason == "stop"


def test_an_answer_that_breaks_off_says_so_in_an_event():
    [event] = read(answered().broken({"error": {"message": "No more."}}))
    assert json.loads(event) == {"error": {"message": "No more."}}
