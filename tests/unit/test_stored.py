"""The stored form of a state: what is rejected, and with which error."""

import json

import pytest

from frameledger import stored
from frameledger.evolve.state import (
    Announced,
    Call,
    Calls,
    Erased,
    Group,
    MessageCursor,
    Pace,
    PendingRun,
    RejectedTurn,
    RequestParameters,
    Response,
    Run,
    Running,
    Runs,
    Speech,
    State,
    Thought,
    Turn,
)
from frameledger.evolve.text import plus
from frameledger.fold import Conversation
from frameledger.ids import ToolCallId, Version
from frameledger.stored import FOLD_VERSION, StoredStateError
from frameledger.values import replace


def test_a_state_that_a_newer_fold_made_is_refused_and_says_what_to_do():
    with pytest.raises(StoredStateError, match="upgrade the release"):
        stored.load(written(fold=FOLD_VERSION + 1))


def test_a_state_of_this_fold_is_read_back():
    state = Conversation.new("a").state
    assert stored.load(stored.dump(state)) == state
    assert stored.load(written()) == state


@pytest.mark.parametrize("words", ["plain", "f\u00fcr", "half \ud83d"])
def test_the_stored_form_is_compact_ascii_and_has_only_what_is_open(words):
    state = Conversation.new("a").state
    assert stored.dump(state) == b'{"fold":%d,"state":{"context_id":"a"}}' % FOLD_VERSION
    heard = stored.dump(replace(state, turn=Turn(Version(3), words=plus(None, words, False))))
    turn = b'{"opened_version":3,"words":[%b,false]}' % json.dumps(words).encode()
    assert json.loads(heard) == json.loads(
        b'{"fold":%d,"state":{"context_id":"a","turn":%b}}' % (FOLD_VERSION, turn)
    )
    assert heard.isascii()
    assert b" " not in heard.replace(b"half ", b"")


def test_what_a_stored_state_leaves_out_means_the_same_in_every_release():
    """A state is stored without what has its default, so no default may ever change."""
    running = {"since": 2, "synchronous": True, "era": 1, "position": 2}
    call = {"tool_call_id": "a", "function_name": "f", "requested_version": 1, "ordinal": 0, "group": "1"}
    loaded = stored.load(
        written(
            version=9,
            place={},
            terms={},
            turn={"opened_version": 3},
            speech={"response": {"opened_version": 4}, "thought": {"llm": "x"}},
            calls={
                "open": {"a": call | {"stage": "running", "announced": {}, "running": running}},
                "groups": {"1": {}},
            },
            runs={
                "open": {"run_id": "r", "asked_version": 1, "opened_version": 1},
                "wanted": {"run_id": "p", "asked_version": 2},
            },
            erased={"version": 0},
            pace={},
            rejected_turn={"opened_version": 5},
        )
    )
    assert loaded == State(
        "a",
        9,
        MessageCursor(1, 1, (), None, 0),
        RequestParameters((), None, {}, None, None, False, False, {}, None),
        Turn(3, True, None, False, None, None),
        Speech(Response(4, None, False, None, None, False), Thought("x", None, None, None), None, None),
        Calls(
            {
                ToolCallId("a"): Call(
                    *("a", "f", 1, 0, "1", "running"),
                    Announced(None, 0, None, None, False, False),
                    Running(2, True, 1, 2, None, None, False, False, False, None),
                    *(False, None),
                )
            },
            {"1": Group((), False, False, False, 0)},
            (),
            (),
            (),
        ),
        Runs(Run("r", 1, 1, 0, False, (), None, ()), PendingRun("p", 2, ()), False, False, None),
        Erased(0, (), ()),
        0,
        Pace(0, None, 0, 0),
        RejectedTurn(5, True, True),
    )
    empty = State(
        "a", 0, MessageCursor(1, 1), RequestParameters(), None, Speech(), Calls(), Runs(), None, 0, Pace()
    )
    assert stored.load(written()) == empty


def test_of_a_state_of_the_fold_before_any_frame_may_have_changed_the_context():
    """It does not say which one did. So a client that knows an older version is refused rather than believed."""
    assert stored.load(written(fold=3, version=7)).changed_version == 7
    assert stored.load(written(fold=4, version=7)).changed_version == 0


@pytest.mark.rule("RA5.rewrite")
def test_of_a_state_of_the_fold_before_any_position_may_be_empty_again():
    assert stored.load(written(fold=4, place={"next_position": 7})).place.fixed == (1, 6)
    assert stored.load(written(fold=4, place={"next_position": 2})).place.fixed == (1, 1)
    assert stored.load(written(fold=4)).place.fixed is None
    assert stored.load(written(fold=5, place={"next_position": 7})).place.fixed is None


@pytest.mark.rule("R7.3")
def test_a_rejected_turn_is_read_back_and_none_is_known_of_the_fold_before():
    rejected = replace(Conversation.new("a").state, rejected_turn=RejectedTurn(Version(3), speaking=False))
    assert stored.load(stored.dump(rejected)) == rejected
    assert stored.load(written(fold=9)).rejected_turn is None


@pytest.mark.parametrize("fold", [None, True, "1", 1.0])
def test_a_state_that_does_not_say_which_fold_made_it_is_refused(fold):
    with pytest.raises(StoredStateError, match="which fold made it"):
        stored.load(written(fold=fold))


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"\xff",
        b"no JSON",
        b"[1]",
        pytest.param(b"[" * 100_000, id="too deep"),
        b'{"fold": 1}',
        b'{"fold": 1, "state": []}',
        b'{"fold": 1, "state": {}}',
        b'{"fold": 1, "state": {"context_id": "a", "version": "many"}}',
    ],
)
def test_what_is_no_state_is_one_error(damaged):
    with pytest.raises(StoredStateError):
        stored.load(damaged)


@pytest.mark.parametrize("text", [5, "words", [], ["words"], ["words", 1], [1, False], ["words", False, 3]])
def test_a_text_that_is_damaged_is_the_same_error(text):
    with pytest.raises(StoredStateError, match="damaged"):
        stored.load(written(turn={"opened_version": 1, "words": text}))


def written(fold=FOLD_VERSION, **open_parts) -> bytes:
    return json.dumps({"fold": fold, "state": {"context_id": "a", **open_parts}}).encode()


def test_texts_are_equal_if_they_read_the_same_in_however_many_pieces_they_came():
    pieces, whole = plus(plus(None, "one ", True), "two", True), plus(None, "one two", True)
    assert pieces == whole
    assert hash(pieces) == hash(whole)
    for other in (plus(None, "one", True), plus(None, "one two", False), "one two"):
        assert whole != other
