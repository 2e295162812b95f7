"""An AG-UI client's resent history, by the rule in `gateway/ag_ui/history`."""

import json

import pytest

from frameledger import async_tool_messages as background
from frameledger_services.gateway.ag_ui import content_parts, history, messages
from frameledger_services.gateway.ag_ui.history import Plan
from frameledger_services.gateway.ag_ui.run_input import Message
from frameledger_services.store.shown_messages import ShownMessage

SYSTEM = {"role": "system", "content": "Be brief."}
HI = {"role": "user", "content": "Hi"}
HELLO = {"role": "assistant", "content": "Hello, and welcome."}
CALL = {
    "role": "assistant",
    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "trains", "arguments": "{}"}}],
}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": '{"late":25}'}
WAITS = {"role": "tool", "tool_call_id": "c1", "content": background.IN_PROGRESS}
THOUGHT = {"llm": "anthropic", "message": {"type": "thought", "text": "Hm.", "signature": "c2ln"}}
REPORT = background.build_final_result_message("c2", '"held"')
LATER = {"role": "assistant", "content": "It is held."}

MORE = Message(id="new", role="user", content="More?")
MORE_STORED = {"role": "user", "content": "More?"}


def stored(*rows, ids=None, run_id="run-1"):
    """Rows of a history; what the assistant says is of a run."""
    named = ids or {}
    return [
        ShownMessage(1, place, run_id if row is HELLO else None, named.get(place), row)
        for place, row in enumerate(rows, 1)
    ]


def sent(rows):
    """What a client sends that holds these rows."""
    return [Message.model_validate(one) for one in messages.shown(rows)[0]]


def test_a_client_has_each_message_under_the_id_of_what_it_is():
    rows = stored(HI, THOUGHT, HELLO, CALL, RESULT, LATER, ids={1: "u1"})
    assert [one["id"] for one in messages.shown(rows)[0]] == ["u1", "run-1", "call-c1", "result-c1", "1.6"]


def test_a_call_that_is_not_answered_has_no_tool_message():
    assert [one["id"] for one in messages.shown(stored(HI, CALL, WAITS))[0]] == ["1.1", "call-c1"]


def test_a_call_id_that_comes_again_is_another_call():
    found, calls = messages.shown(stored(CALL, RESULT, CALL, WAITS))
    assert [one["id"] for one in found] == ["call-c1", "result-c1", "call-c1~2"]
    assert calls.synchronous_name("c1") == "c1~2"


@pytest.mark.parametrize(
    "rows",
    [
        (),
        (HI, HELLO),
        (SYSTEM, HI, THOUGHT, HELLO),
        (HI, HELLO, CALL, RESULT, LATER),
        (HI, CALL, WAITS),
        (HI, CALL, RESULT, REPORT, LATER),
    ],
)
def test_what_is_new_behind_all_that_is_stored_is_appended(rows):
    held = stored(*rows)
    assert history.plan(held, [*sent(held), MORE]) == Plan("append", [MORE_STORED], ["new"])
    assert history.plan(held, sent(held)) == Plan("append", [], [])


def test_ids_of_the_clients_own_are_no_edit_where_the_words_are_the_same():
    held = stored(HI, HELLO)
    own = [
        Message(id="x1", role="user", content=" Hi "),
        Message(id="x2", role="assistant", content=HELLO["content"]),
    ]
    assert history.plan(held, [*own, MORE]).kind == "append"


def test_reordered_by_a_snapshot_is_no_edit():
    held = stored(HI, LATER, HELLO)
    first, second, third = sent(held)
    assert history.plan(held, [first, third, second, MORE]).kind == "append"


def test_the_beginning_of_the_last_answer_is_that_answer_and_of_an_earlier_one_an_edit():
    held = stored(HI, HELLO)
    first, _ = sent(held)
    cut = Message(id="run-1", role="assistant", content="Hello, and")
    assert history.plan(held, [first, cut, MORE]).kind == "append"
    held = stored(HI, HELLO, HI, LATER)
    first, _, *rest = sent(held)
    assert history.plan(held, [first, cut, *rest, MORE]).kind == "replace"


def test_an_operators_instruction_stays_whether_it_is_sent_or_not():
    held = stored(SYSTEM, HI, HELLO)
    assert history.plan(held, [*sent(held)[1:], MORE]) == Plan("append", [MORE_STORED], ["new"])
    edited = history.plan(held, [MORE])
    assert edited == Plan("replace", [SYSTEM, MORE_STORED], ["1.1", "new"])


def test_what_came_while_the_client_was_away_stays():
    held = stored(HI, HELLO, REPORT, LATER)
    assert history.plan(held, [*sent(held)[:2], MORE]) == Plan("append", [MORE_STORED], ["new"])


def test_an_edit_keeps_what_is_stored_before_it_with_thoughts_and_calls():
    held = stored(HI, THOUGHT, HELLO, CALL, RESULT, LATER)
    rest = sent(held)[:-1]
    edited = history.plan(held, [*rest, MORE])
    assert edited.kind == "replace"
    assert edited.messages == [HI, THOUGHT, HELLO, CALL, RESULT, MORE_STORED]
    assert edited.ids == ["1.1", None, "run-1", "call-c1", "result-c1", "new"]
    # The ids of the former era go on.
    again = stored(*edited.messages, ids=dict(enumerate(edited.ids, 1)), run_id=None)
    assert [one["id"] for one in messages.shown(again)[0]] == [one for one in edited.ids if one]


@pytest.mark.parametrize(
    "change",
    [
        lambda first, answer, call, result: [answer, call, result],
        lambda first, answer, call, result: [
            first.model_copy(update={"content": "Ho"}),
            answer,
            call,
            result,
        ],
        lambda first, answer, call, result: [
            first,
            answer,
            call,
            result.model_copy(update={"content": "no"}),
        ],
        lambda first, answer, call, result: [first, MORE, answer, call, result],
        lambda first, answer, call, result: [first],
    ],
)
def test_another_history_replaces_the_stored_one(change):
    held = stored(HI, HELLO, CALL, RESULT)
    wanted = change(*sent(held))
    found = history.plan(held, wanted)
    assert found.kind == "replace"
    assert found.messages == [history.as_stored(one) for one in wanted]


PICTURE = {"type": "image", "source": {"type": "data", "value": "AAAA", "mimeType": "image/png"}}


@pytest.mark.parametrize(
    "part",
    [
        {"type": "text", "text": "Look."},
        PICTURE,
        {"type": "image", "source": {"type": "url", "value": "https://example.com/a.png"}},
        {"type": "audio", "source": {"type": "data", "value": "AAAA", "mimeType": "audio/wav"}},
        {"type": "document", "source": {"type": "data", "value": "AAAA", "mimeType": "application/pdf"}},
        {"type": "document", "source": {"type": "file", "value": "file-1"}},
    ],
)
def test_a_part_that_is_stored_comes_back_as_it_was(part):
    assert content_parts.to_client(content_parts.to_stored([part])) == [part]
    message = Message(id="u1", role="user", content=[part])
    held = [ShownMessage(1, 1, None, "u1", history.as_stored(message))]
    assert history.plan(held, [message, MORE]).kind == "append"


def test_a_part_that_no_model_takes_so_is_left_out():
    film = {"type": "video", "source": {"type": "url", "value": "https://example.com/a.mp4"}}
    assert content_parts.to_stored([film, PICTURE]) == content_parts.to_stored([PICTURE])


@pytest.mark.parametrize("text", ["1.10", "NaN", '{"a": NaN}', 200_000 * "["], ids=lambda text: text[:10])
def test_a_result_that_is_text_is_the_one_that_is_stored_and_no_other(text):
    rows = stored(HI, CALL, {**RESULT, "content": json.dumps(text)})
    mine = Message(id="mine", role="tool", toolCallId="c1", content=text)
    assert history.plan(rows, [*sent(rows)[:2], mine]) == Plan("append", [], [])
    other = mine.model_copy(update={"content": "1.1"})
    assert history.plan(rows, [*sent(rows)[:2], other]).kind == "replace"
