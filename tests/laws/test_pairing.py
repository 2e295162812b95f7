"""Whatever clients append, in a request each call is directly followed by its only result, and there are no other
results."""

from hypothesis import given
from hypothesis import strategies as st

from frameledger.context import LLMSpecificMessage
from frameledger_services.providers.pairing import paired, tool_calls

IDS = st.sampled_from(["x", "y", "x-2", ""])
ID_OR_NONE = st.one_of(IDS, st.none())
TEXTS = st.one_of(st.none(), st.sampled_from(["a", "b"]), st.just([{"type": "text", "text": "c"}]))
CALLS = st.builds(lambda name: {"id": name, "function": {"name": "f", "arguments": "{}"}}, ID_OR_NONE)
MESSAGES = st.lists(
    st.one_of(
        st.builds(lambda text: {"role": "user", "content": text}, TEXTS),
        st.builds(
            lambda name, text: {"role": "tool", "tool_call_id": name, "content": text}, ID_OR_NONE, TEXTS
        ),
        st.builds(
            lambda calls, text: {"role": "assistant", "content": text, "tool_calls": calls},
            st.lists(st.one_of(CALLS, st.just("no call")), max_size=3),
            TEXTS,
        ),
        st.just(LLMSpecificMessage("p", {"role": "tool", "tool_call_id": "x"})),
        st.just({"role": "tool"}),
        st.just({"role": "assistant", "tool_calls": None}),
    ),
    max_size=12,
)


def role(message):
    return None if isinstance(message, LLMSpecificMessage) else message.get("role")


@given(MESSAGES)
def test_every_call_is_answered_directly_after_it_and_nothing_else_is(messages):
    open_calls: list[str] = []
    given_out: list[str] = []
    for message in paired(messages):
        if role(message) == "tool":
            assert message["tool_call_id"] == open_calls.pop(0)
            continue
        assert open_calls == []
        open_calls = [one["id"] for one in tool_calls(message)]
        given_out += open_calls
    assert open_calls == []
    assert len(set(given_out)) == len(given_out)
    assert all(given_out)


@given(MESSAGES)
def test_nothing_is_lost_but_tool_messages_that_moved_or_became_words(messages):
    def others(found):
        return [
            (role(message), len(tool_calls(message)))
            for message in found
            if role(message) not in {"tool", "user"}
        ]

    after = paired(messages)
    assert others(after) == others(messages)
    told = sum(role(message) == "user" for message in after) - sum(role(m) == "user" for m in messages)
    answered = sum(role(message) == "tool" for message in messages) - told
    assert told >= 0
    assert 0 <= answered <= sum(len(tool_calls(message)) for message in messages)


@given(MESSAGES)
def test_to_pair_twice_changes_nothing_more(messages):
    once = paired(messages)
    assert paired(once) == once


@given(MESSAGES, MESSAGES)
def test_a_message_that_comes_later_does_not_change_the_beginning(messages, more):
    """Providers cache requests by their beginning, so it must not change while a conversation continues."""
    settled = [*messages, {"role": "user", "content": "over"}]
    rest = [message for message in more if role(message) != "tool"]
    assert paired([*settled, *rest])[: len(paired(settled))] == paired(settled)
