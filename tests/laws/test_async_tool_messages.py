"""Async-tool messages: reading returns what a message was built from, and accepts any value."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frameledger import async_tool_messages, tools

TEXTS = st.text(st.characters(codec=None), max_size=20)  # lone surrogates included
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


def of_keys(*keys: str, values: st.SearchStrategy = JSON) -> st.SearchStrategy:
    """Returns mappings with some of the keys that the code reads, and any values."""
    return st.fixed_dictionaries({}, optional=dict.fromkeys(keys, values))


PAYLOADS = of_keys(
    "type",
    "status",
    "tool_call_id",
    "description",
    "result",
    values=st.sampled_from(["async_tool", "running", "finished", "c1"]) | JSON,
)
MESSAGES = st.fixed_dictionaries(
    {"role": st.sampled_from(["tool", "developer"]) | JSON, "content": PAYLOADS.map(json.dumps) | JSON},
    optional={"tool_call_id": st.just("c1") | JSON},
)
TOOLS = of_keys(
    *("type", "name", "function", "function_declarations", "toolSpec", "llm", "tool"),
    values=JSON | of_keys("name", "function", "type"),
)


def joined(text: str) -> str:
    """Returns the text with adjacent halves of a surrogate pair joined, as JSON does."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


@pytest.mark.parametrize(
    ("build", "kind"),
    [
        (async_tool_messages.build_intermediate_result_message, "intermediate"),
        (async_tool_messages.build_final_result_message, "final"),
    ],
)
@given(tool_call_id=TEXTS, result=TEXTS)
def test_a_result_message_says_what_it_was_built_from(build, kind, tool_call_id, result) -> None:
    message = build(tool_call_id, result)
    payload = async_tool_messages.parse_message(message)
    assert (payload.kind, payload.tool_call_id, payload.result) == (
        kind,
        joined(tool_call_id),
        joined(result),
    )
    assert payload.to_message() == message
    assert message["content"].encode()


@given(MESSAGES | JSON)
def test_what_is_read_as_a_payload_can_be_written_and_read_again(message) -> None:
    payload = async_tool_messages.parse_message(message)
    if payload is not None:
        assert async_tool_messages.parse_message(payload.to_message()) == payload


@given(TOOLS | JSON)
def test_a_tool_of_any_shape_has_names_or_none(tool) -> None:
    names = tools.tool_names([tool])
    assert "" not in names
    assert {type(name) for name in names} <= {str}
    assert tools.tool_name(tool) == next(iter(names), None)
