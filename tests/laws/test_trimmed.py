"""Trimming keeps its promises for any history and limit."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frameledger.context import LLMContext, LLMSpecificMessage, trimmed

IDS = st.sampled_from(["c1", "c2", "c3"])  # few, so that ids are used again

MESSAGES = st.one_of(
    st.just("system").map(lambda role: {"role": role, "content": "s"}),
    st.sampled_from(["user", "assistant", "developer"]).map(lambda role: {"role": role, "content": "t"}),
    st.lists(IDS, max_size=3).map(
        lambda ids: {"role": "assistant", "tool_calls": [{"id": one, "type": "function"} for one in ids]}
    ),
    IDS.map(lambda one: {"role": "tool", "tool_call_id": one, "content": "r"}),
    st.just("x").map(lambda llm: LLMSpecificMessage(llm, {"role": "system"})),
)
HISTORIES = st.lists(MESSAGES, max_size=25)
LIMITS = st.integers(min_value=0, max_value=27)


def role(message: Any) -> str:
    return message["role"] if isinstance(message, dict) else "provider"


def places_kept(history: list[Any], kept: tuple[Any, ...]) -> set[int]:
    """Returns the places of the history that the result contains: identical elements, in the same order."""
    place = {id(message): at for at, message in enumerate(history)}
    places = [place[id(message)] for message in kept]
    assert places == sorted(set(places))
    return set(places)


def pairs(history: list[Any]) -> list[tuple[int, int]]:
    """Returns the places of each tool message and of the call that it answers, by a plain search."""
    return [
        (asked, at)
        for at, message in enumerate(history)
        if role(message) == "tool"
        for asked in [
            next(
                (
                    before
                    for before in range(at - 1, -1, -1)
                    if role(history[before]) == "assistant"
                    and any(
                        one["id"] == message["tool_call_id"] for one in history[before].get("tool_calls", ())
                    )
                ),
                None,
            )
        ]
        if asked is not None
    ]


@given(HISTORIES, LIMITS)
def test_what_is_kept_is_part_of_the_history_in_its_order_without_repeats(history, limit) -> None:
    assert len(places_kept(history, trimmed(history, limit))) == len(trimmed(history, limit))


@given(HISTORIES, LIMITS)
def test_every_system_message_is_kept_and_only_they_exceed_the_limit(history, limit) -> None:
    kept = trimmed(history, limit)
    systems = sum(role(message) == "system" for message in history)
    assert sum(role(message) == "system" for message in kept) == systems
    assert len(kept) <= max(limit, systems)


@given(HISTORIES, LIMITS)
def test_no_call_is_parted_from_its_results(history, limit) -> None:
    kept = places_kept(history, trimmed(history, limit))
    assert all((asked in kept) == (answered in kept) for asked, answered in pairs(history))


@given(HISTORIES, LIMITS)
def test_nothing_more_could_be_kept_from_the_newest_end(history, limit) -> None:
    kept = places_kept(history, trimmed(history, limit))
    left_out = [at for at in range(len(history)) if at not in kept]
    if left_out:
        newest = left_out[-1]
        group = {newest}
        for _ in history:  # until nothing more joins
            group |= {place for pair in pairs(history) if group & set(pair) for place in pair}
        assert len(kept) + len(group) > limit
        # Whatever is kept from before it is a system message or goes with something newer.
        older = {at for at in kept if at < newest and role(history[at]) != "system"}
        linked = {at for pair in pairs(history) for at in pair}
        assert older <= linked


@given(HISTORIES, LIMITS)
def test_trimming_again_changes_nothing(history, limit) -> None:
    once = trimmed(history, limit)
    assert trimmed(once, limit) == once


@given(HISTORIES, LIMITS)
def test_the_wire_form_is_trimmed_alike(history, limit) -> None:
    context = LLMContext(history)
    kept = trimmed(context.to_wire()["messages"], limit)
    assert LLMContext(kept) == context.with_messages(trimmed(context.messages, limit))


@pytest.mark.parametrize("limit", [0, 5])
def test_an_empty_history_stays_empty(limit) -> None:
    assert trimmed([], limit) == ()
