"""Calls assembled from the pieces of a stream."""

import json
from types import SimpleNamespace

import pytest

from frameledger_services.providers import call_pieces
from frameledger_services.providers.call_pieces import CallPieces
from frameledger_services.providers.errors import IncompleteCallError


def whole(*pieces, stopped_early=False):
    calls = CallPieces()
    for place, tool_call_id, name, arguments in pieces:
        calls.add(place, tool_call_id=tool_call_id, function_name=name, arguments=arguments)
    found = calls.whole(stopped_early=stopped_early)
    return [(call.tool_call_id, call.function_name, call.arguments) for call in found]


def test_pieces_are_joined_and_calls_ordered_by_their_places():
    assert whole((1, "b", "g", '{"'), (0, "a", "f", ""), (1, None, None, 'x":1}'), (0, None, None, "{}")) == [
        ("a", "f", "{}"),
        ("b", "g", '{"x":1}'),
    ]


def test_an_id_that_is_said_again_is_the_same_call():
    assert whole((0, "a", "f", "{"), (0, "a", "f", "}")) == [("a", "f", "{}")]


@pytest.mark.parametrize("place", [0, None])
def test_another_id_at_the_same_place_is_another_call(place):
    assert whole((place, "a", "f", "{}"), (place, "b", "f", "{}")) == [("a", "f", "{}"), ("b", "f", "{}")]


@pytest.mark.regression("worker 48")
@pytest.mark.parametrize("given", ["", "a\x00", "\ud83d", "\ud83d" * 300, "é" * 200])
def test_an_id_that_no_frame_can_carry_is_one_of_ours(given):
    assert whole((0, given, "f", "{}")) == [("call_0", "f", "{}")]


@pytest.mark.regression("worker 4")
def test_another_id_without_a_name_is_the_same_call():
    pieces = [(0, "a", "f", None), (0, "b", None, '{"a":'), (0, "c", None, "1}")]
    assert whole(*pieces) == [("a", "f", '{"a":1}')]


@pytest.mark.regression("worker 4")
@pytest.mark.parametrize("place", [0, None])
@pytest.mark.parametrize("names", ["ff", "fg"])
def test_whole_calls_without_ids_are_calls_of_their_own(place, names):
    first, second = names
    assert whole((place, "", first, '{"a":1}'), (place, "", second, '{"a":2}')) == [
        ("call_0", first, '{"a":1}'),
        ("call_1", second, '{"a":2}'),
    ]


@pytest.mark.regression("worker 104")
@pytest.mark.parametrize("nothing", ["", None, " "])
def test_a_call_without_arguments_and_without_an_id_is_not_given_those_of_the_next(nothing):
    assert whole((None, None, "ping", nothing), (None, None, "pay", '{"eur":5}')) == [
        ("call_0", "ping", "{}"),
        ("call_1", "pay", '{"eur":5}'),
    ]


@pytest.mark.regression("worker 161")
@pytest.mark.parametrize(
    ("pieces", "said"),
    [
        (['{"a": ', "1}", '{"a": 1}'], '{"a": 1}'),
        (['{"a": 1}', ' {"a":1}\n', '{"a":1}'], '{"a": 1}'),
        (["{}", '{"a"', ":1}"], '{"a":1}'),
        (["{}", "{}"], "{}"),
    ],
)
@pytest.mark.parametrize("stopped_early", [False, True])
def test_arguments_that_a_server_sends_again_are_those_of_one_call(pieces, said, stopped_early):
    first, *others = pieces
    found = whole(
        (0, "a", "f", first), *((0, None, None, piece) for piece in others), stopped_early=stopped_early
    )
    assert found == [("a", "f", said)]


@pytest.mark.parametrize(
    "arguments", ['{"a":1}{"a":2}', '{"a":1}{"a":', "1 1", '{"a":1} x', '{"a":1}[]', ' {"a":1}\n']
)
def test_other_arguments_stay_as_they_were_written(arguments):
    assert whole((0, "a", "f", arguments)) == [("a", "f", arguments)]


@pytest.mark.regression("worker 108")
def test_arguments_in_many_pieces_that_each_name_the_function_are_read_few_times(monkeypatch):
    read = []

    def count(text):
        read.append(len(text))
        return json.loads(text)

    monkeypatch.setattr(call_pieces, "json", SimpleNamespace(loads=count))
    pieces = ['{"text": "', *["abc "] * 1_000, '"}', "\n"]
    assert whole(*[(0, None, "write", piece) for piece in pieces], (0, None, "write", "{}")) == [
        ("call_0", "write", "".join(pieces)),
        ("call_1", "write", "{}"),
    ]
    assert sum(read) < 4 * len("".join(pieces))


@pytest.mark.regression("worker 4")
def test_a_name_that_is_said_again_is_the_same_call():
    assert whole((0, None, "f", ""), (0, None, "f", '{"a":'), (0, None, "f", "1}"), (0, None, "f", "")) == [
        ("call_0", "f", '{"a":1}')
    ]
    assert whole((0, "a", "f", "{}"), (0, "a", "f", " ")) == [("a", "f", "{} ")]


@pytest.mark.parametrize("arguments", ["", "{", '{"a": "b', '{"a": 1'])
def test_arguments_that_were_cut_off_are_no_call(arguments):
    with pytest.raises(IncompleteCallError, match="a call of f"):
        whole((0, "a", "f", arguments), stopped_early=True)


def test_one_cut_off_call_takes_the_whole_ones_with_it():
    with pytest.raises(IncompleteCallError):
        whole((0, "a", "f", "{}"), (1, "b", "g", "{"), stopped_early=True)


def test_whole_calls_before_the_limit_are_calls():
    assert whole((0, "a", "f", "{}"), stopped_early=True) == [("a", "f", "{}")]


def test_a_call_that_names_no_function_is_not_complete():
    with pytest.raises(IncompleteCallError, match="without a name"):
        whole((0, "a", None, "{}"))


@pytest.mark.parametrize("tool_call_id", [None, "", "a\x00b", "é" * 200])
def test_an_id_that_no_frame_can_hold_is_another_one(tool_call_id):
    assert whole((0, tool_call_id, "f", "{}")) == [("call_0", "f", "{}")]


def test_no_pieces_are_no_calls():
    assert whole(stopped_early=True) == []
