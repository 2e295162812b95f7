"""The messages about a call that runs in the background, and that each is read back as it was built."""

import json
from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from frameledger import async_tool_messages
from frameledger.async_tool_messages import AsyncToolMessagePayload
from frameledger.context import LLMContext, LLMSpecificMessage

STARTED = async_tool_messages.build_started_message("c1")
INTERMEDIATE = async_tool_messages.build_intermediate_result_message("c1", '{"step":1}')
FINAL = async_tool_messages.build_final_result_message("c1", '{"temp_c":18}')
ALL = [STARTED, INTERMEDIATE, FINAL]


def content(message: dict[str, Any]) -> dict[str, Any]:
    payload: dict[str, Any] = json.loads(message["content"])
    return payload


def with_content(message: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """The message with fields of its payload replaced, or removed where the change is `...`."""
    fields = content(message) | changes
    return message | {"content": json.dumps({k: v for k, v in fields.items() if v is not ...})}


def test_a_started_message_is_the_tool_message_of_its_call() -> None:
    assert (STARTED["role"], STARTED["tool_call_id"]) == ("tool", "c1")
    assert set(STARTED) == {"role", "content", "tool_call_id"}
    assert content(STARTED)["status"] == "running"


@pytest.mark.parametrize(
    ("message", "status", "result"),
    [(INTERMEDIATE, "running", '{"step":1}'), (FINAL, "finished", '{"temp_c":18}')],
    ids=["intermediate", "final"],
)
def test_results_are_developer_messages_with_the_result_as_json_text(message, status, result) -> None:
    assert set(message) == {"role", "content"}
    assert message["role"] == "developer"
    assert (content(message)["status"], content(message)["result"]) == (status, result)


def test_the_keys_of_the_content_have_one_order_and_a_started_one_has_no_result() -> None:
    keys = ["type", "status", "tool_call_id", "description"]
    assert list(content(STARTED)) == keys
    assert list(content(INTERMEDIATE)) == list(content(FINAL)) == [*keys, "result"]
    assert {content(message)["type"] for message in ALL} == {"async_tool"}


def test_each_kind_has_a_description_of_its_own_for_the_model() -> None:
    descriptions = {content(message)["description"] for message in ALL}
    assert len(descriptions) == 3
    assert all(descriptions)


def test_building_twice_gives_the_same_bytes() -> None:
    again = async_tool_messages.build_final_result_message("c1", '{"temp_c":18}')
    assert again == FINAL
    assert again is not FINAL


def test_text_beyond_ascii_is_written_as_it_is() -> None:
    message = async_tool_messages.build_final_result_message("c-é", '"Zürich ☀"')
    assert "Zürich ☀" in message["content"]
    assert "c-é" in message["content"]


def test_half_a_surrogate_pair_is_written_as_its_escape_and_read_back() -> None:
    message = async_tool_messages.build_final_result_message("c1", '"\ud83d"')
    assert r"\ud83d" in message["content"]
    message["content"].encode()
    payload = async_tool_messages.parse_message(message)
    assert payload is not None
    assert payload.result == '"\ud83d"'
    assert payload.to_message() == message


@pytest.mark.parametrize("message", ALL, ids=["started", "intermediate", "final"])
def test_a_parsed_payload_gives_back_the_very_message(message) -> None:
    payload = async_tool_messages.parse_message(message)
    assert payload is not None
    assert payload.to_message() == message
    assert async_tool_messages.parse_message(payload.to_message()) == payload


def test_the_kind_follows_from_role_status_and_result() -> None:
    payloads = [async_tool_messages.parse_message(message) for message in ALL]
    description = content(STARTED)["description"]
    assert [payload.kind for payload in payloads if payload] == ["started", "intermediate", "final"]
    assert payloads[0] == AsyncToolMessagePayload("started", "c1", "running", description, None)


def test_no_value_and_the_text_completed_differ() -> None:
    nothing = async_tool_messages.build_final_result_message("c1", async_tool_messages.COMPLETED)
    text = async_tool_messages.build_final_result_message("c1", json.dumps("COMPLETED"))
    assert async_tool_messages.parse_message(nothing).result == "COMPLETED"
    assert async_tool_messages.parse_message(text).result == '"COMPLETED"'


def test_a_cancelled_call_ends_with_a_final_message() -> None:
    message = async_tool_messages.build_final_result_message("c1", async_tool_messages.CANCELLED)
    payload = async_tool_messages.parse_message(message)
    assert payload is not None
    assert (payload.kind, payload.result) == ("final", "CANCELLED")


def test_the_words_of_a_synchronous_call_are_fixed() -> None:
    words = (async_tool_messages.IN_PROGRESS, async_tool_messages.COMPLETED, async_tool_messages.CANCELLED)
    assert words == ("IN_PROGRESS", "COMPLETED", "CANCELLED")


def test_an_absent_description_is_read_as_an_empty_one() -> None:
    payload = async_tool_messages.parse_message(with_content(FINAL, description=...))
    assert payload is not None
    assert payload.description == ""


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(None, id="null"),
        pytest.param("async_tool", id="text"),
        pytest.param(7, id="a number"),
        pytest.param([STARTED], id="a list"),
        pytest.param({}, id="an empty message"),
        pytest.param(LLMSpecificMessage("openai", FINAL), id="a provider's own message"),
        pytest.param({"llm": "openai", "message": FINAL}, id="a provider's own message on the wire"),
        pytest.param({"role": "user", "content": "hi"}, id="plain words"),
        pytest.param({"role": "tool", "tool_call_id": "c1", "content": '{"temp_c":18}'}, id="a plain result"),
        pytest.param({"role": "tool", "tool_call_id": "c1", "content": "IN_PROGRESS"}, id="a call that runs"),
        pytest.param(FINAL | {"role": "user"}, id="role user"),
        pytest.param(FINAL | {"role": ["developer"]}, id="a role that is no text"),
        pytest.param({"content": FINAL["content"]}, id="no role"),
        pytest.param(FINAL | {"content": None}, id="null content"),
        pytest.param(
            FINAL | {"content": [{"type": "text", "text": FINAL["content"]}]}, id="content in parts"
        ),
        pytest.param(FINAL | {"content": content(FINAL)}, id="content that is no text"),
        pytest.param(FINAL | {"content": FINAL["content"].encode()}, id="content in bytes"),
        pytest.param(FINAL | {"content": FINAL["content"][:-1]}, id="broken JSON"),
        pytest.param(FINAL | {"content": ""}, id="empty content"),
        pytest.param(FINAL | {"content": "[" * 100_000}, id="JSON of great depth"),
        pytest.param(FINAL | {"content": "9" * 5_000}, id="a number of many digits"),
        pytest.param(FINAL | {"content": '["async_tool"]'}, id="a JSON list"),
        pytest.param(with_content(FINAL, type="tool"), id="another type"),
        pytest.param(with_content(FINAL, type={}), id="a type that is no text"),
        pytest.param(with_content(FINAL, status="done"), id="an unknown status"),
        pytest.param(with_content(FINAL, status=[]), id="a status that is no text"),
        pytest.param(with_content(FINAL, status=...), id="no status"),
        pytest.param(with_content(FINAL, tool_call_id=...), id="no call id"),
        pytest.param(with_content(FINAL, tool_call_id=1), id="a call id that is no text"),
        pytest.param(with_content(FINAL, description=5), id="a description that is no text"),
        pytest.param(with_content(FINAL, result=...), id="final without a result"),
        pytest.param(with_content(FINAL, result={"temp_c": 18}), id="a result that is no text"),
        pytest.param(with_content(INTERMEDIATE, result=None), id="intermediate with a null result"),
        pytest.param(with_content(STARTED, result='"x"'), id="started with a result"),
        pytest.param(with_content(STARTED, status="finished"), id="started and finished"),
        pytest.param(STARTED | {"role": "developer"}, id="started as a developer message"),
        pytest.param(FINAL | {"role": "tool", "tool_call_id": "c1"}, id="final as a tool message"),
        pytest.param(STARTED | {"tool_call_id": "c2"}, id="started under another call's id"),
    ],
)
def test_whatever_is_not_of_the_protocol_gives_null(message) -> None:
    assert async_tool_messages.parse_message(message) is None


def test_a_payload_cannot_be_changed() -> None:
    payload = async_tool_messages.parse_message(FINAL)
    with pytest.raises(FrozenInstanceError):
        payload.result = "other"  # type: ignore[misc]  # what the test is about


def test_the_messages_fit_a_context() -> None:
    context = LLMContext()
    for message in ALL:
        context = context.add_message(message)
    assert list(context.messages) == ALL
