"""How answers are compared and priced."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frameledger_services.forks import prices
from frameledger_services.forks.answer import UsedTokens
from frameledger_services.forks.canonical import canonical
from frameledger_services.forks.comparison import word_diff


def kinds(before, after):
    return [(piece.kind, piece.text) for piece in word_diff(before, after)]


def test_words_that_differ_are_marked_and_the_others_are_not():
    assert kinds("It rains in Oslo.", "It snows in Oslo.") == [
        ("same", "It "),
        ("gone", "rains "),
        ("new", "snows "),
        ("same", "in Oslo."),
    ]
    assert kinds("So it is, I hope.", "So it was, we fear.") == [
        ("same", "So it "),
        ("gone", "is, I hope. "),
        ("new", "was, we fear."),
    ]
    assert kinds("", "Yes.") == [("new", "Yes.")]
    assert kinds("Yes.", "") == [("gone", "Yes.")]
    assert kinds("", "") == []


def test_space_is_no_difference():
    assert kinds("It  rains.\n", "It rains.") == [("same", "It rains.")]


@given(st.text("ab \n", max_size=40), st.text("ab \n", max_size=40))
def test_a_word_diff_holds_both_texts(before, after):
    pieces = word_diff(before, after)
    assert "".join(piece.text for piece in pieces if piece.kind != "gone").split() == after.split()
    assert "".join(piece.text for piece in pieces if piece.kind != "new").split() == before.split()


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ({"a": 1, "b": [2]}, {"b": [2.0], "a": 1.0}, True),
        ({"a": 1}, '{ "a": 1 }', True),
        ({"a": 1}, {"a": True}, False),
        ({"a": 1}, {"a": "1"}, False),
        ("plain", "plain", True),
        ('"1"', "1", False),
        ({"a": None}, {}, False),
    ],
)
def test_arguments_are_equal_as_json_values(one, other, equal):
    assert (canonical(one) == canonical(other)) is equal


LIST = """
["m"]
input = 1.0
output = 10.0
cache_read = 0.1

["scripted/m"]
input = 2.0
output = 20.0
"""


def test_a_price_list_prices_tokens_by_the_million(tmp_path):
    path = tmp_path / "prices.toml"
    path.write_text(LIST)
    found = prices.read(path)
    million = 1_000_000
    used = UsedTokens(input=3 * million, output=million, cache_read=2 * million)
    assert found.of("openai", "m", used) == pytest.approx(1.0 + 0.2 + 10.0)
    assert found.of("scripted", "m", used) == pytest.approx(6.0 + 20.0)
    assert found.of("openai", "another", used) is None
    assert found.of("openai", "m", UsedTokens(input=3)) is None


def test_a_price_list_may_be_json_and_says_where_it_is_wrong(tmp_path):
    path = tmp_path / "prices.json"
    path.write_text(json.dumps({"m": {"input": 1, "output": 2}}))
    assert prices.read(path).of(None, "m", UsedTokens(1_000_000, 0)) == 1.0
    path.write_text(json.dumps({"m": {"input": -1, "output": 2}}))
    with pytest.raises(prices.PricesError, match=r"m\.input"):
        prices.read(path)
    path.write_text("{")
    with pytest.raises(prices.PricesError, match="not a price list"):
        prices.read(path)
    with pytest.raises(prices.PricesError, match="cannot be read"):
        prices.read(tmp_path / "absent.toml")
