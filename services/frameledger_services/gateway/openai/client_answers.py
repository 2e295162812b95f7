"""Matches calls of a client's own functions in the history that it resends with the stored ones and with their results.

The stored form of such a call counts, whatever the client sends: calls are left out when histories are compared
(`rest`), and their stored form replaces the sent one when a history is replaced (`in_pairs`). A client sends all calls
of an answer in one message, followed by their results; the store has each call followed by its result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence, Set
from itertools import pairwise
from typing import Any

from frameledger.async_tool_messages import IN_PROGRESS
from frameledger.tools import tool_names
from frameledger_services.gateway import client_tools
from frameledger_services.gateway.openai.seen_messages import JsonObject, text_of
from frameledger_services.store.client_calls import ClientCall

CallsById = Mapping[str, ClientCall]
"""The calls that a client answers, by their ids."""


def call_ids(sent: Sequence[JsonObject]) -> list[str]:
    """Returns the ids of all calls that are made or answered in these messages."""
    requested_ids = [str(call.get("id")) for message in sent for call in _calls(message)]
    answered = [call_id for message in sent if (call_id := _answered(message)) is not None]
    return list(dict.fromkeys([*requested_ids, *answered]))


def answered_calls(
    sent: Sequence[JsonObject], held: Sequence[JsonObject], calls: CallsById
) -> list[tuple[ClientCall, Any]]:
    """Returns the waiting calls that are answered here, with their results. Of two messages of one call the last
    counts, and one that says that it is in progress, as the stored one does, is no answer.

    Some providers reuse an id once its call is settled: a tool message belongs to the call before it, and calls with
    the same id are matched in order. A client that sends only new messages sends results without their calls.
    """
    stored, all_counts = _call_counts(held), _call_counts(sent)
    counts: Counter[str] = Counter()
    values: dict[str, Any] = {}
    for message in sent:
        counts.update(_call_counts([message]))
        name = _answered(message) or ""
        call = calls.get(name)
        if call is None or not call.is_waiting or counts[name] < all_counts[name]:
            continue
        if message.get("content") == IN_PROGRESS:
            continue
        if counts[name] == 0 or counts[name] >= stored[name]:
            values[name] = _value(message)
    return [(calls[name], value) for name, value in values.items()]


def last(sent: Sequence[JsonObject], calls: CallsById) -> tuple[ClientCall, Any] | None:
    """Returns the call that the last message answers, and its result."""
    call = calls.get(_answered(sent[-1]) or "")
    return None if call is None else (call, _value(sent[-1]))


def placed(held: Sequence[JsonObject], calls: CallsById) -> CallsById:
    """Returns the calls that wait or are in the stored history. A settled call that a client removed from it is a
    message like any other."""
    names = set(call_ids(held))
    return {name: call for name, call in calls.items() if call.is_waiting or name in names}


def made(sent: Sequence[JsonObject], calls: Set[str]) -> Set[str]:
    """Returns the ids of those calls that the messages make, or answer after a question. A client that sends only what
    is new sends the results first."""
    asked = next((place for place, one in enumerate(sent) if one.get("role") == "user"), len(sent))
    before = [one for one in sent[:asked] if _answered(one) is None]
    return calls & set(call_ids([*before, *sent[asked:]]))


def before_calls(messages: Sequence[JsonObject], functions: Container[str]) -> list[bool]:
    """Returns, for each message, whether a call of one of these functions follows it directly."""
    # A call names its function as a definition does.
    following = (tool_names(_calls(one)) for _, one in pairwise([*messages, {}]))
    return [any(name in functions for name in names) for names in following]


def rest(sent: Sequence[JsonObject], calls: Container[str | None]) -> list[JsonObject]:
    """Returns the messages without those of these calls."""
    messages: list[JsonObject] = []
    for message in sent:
        if _answered(message) in calls:
            continue
        message_calls = _calls(message)
        unknown = [call for call in message_calls if call.get("id") not in calls]
        if len(unknown) == len(message_calls):
            messages.append(message)
            continue
        messages += _words(message)
        if unknown:
            messages.append({"role": "assistant", "tool_calls": unknown})
    return messages


def in_pairs(sent: Sequence[JsonObject], held: Sequence[JsonObject], calls: CallsById) -> list[JsonObject]:
    """Returns the messages with each of these calls in its stored form, followed by its result. Calls with the same id
    are matched in order."""
    stored, results = _pairs(held), _results(sent)
    counts: Counter[str] = Counter()
    messages: list[JsonObject] = []
    for message in sent:
        if not any(call.get("id") in calls for call in _calls(message)):
            if _answered(message) not in calls:
                messages.append(message)
            continue
        messages += _words(message)
        for call in _calls(message):
            name = str(call.get("id"))
            counts[name] += 1
            place = name, counts[name]
            pair = stored.get(place) if name in calls else None
            messages += pair or [{"role": "assistant", "tool_calls": [call]}]
            if pair is None and name in calls and place in results:
                messages.append(results[place])
    return messages


_Place = tuple[str, int]
"""A call: its id, and its number among the calls with that id, from 1."""


def _pairs(held: Sequence[JsonObject]) -> dict[_Place, list[JsonObject]]:
    """Returns the calls in their stored form, each with its tool message."""
    counts: Counter[str] = Counter()
    pairs: dict[_Place, list[JsonObject]] = {}
    for message, answer in pairwise(held):
        calls = _calls(message)
        if len(calls) == 1 and _answered(answer) == calls[0].get("id"):
            name = str(calls[0].get("id"))
            counts[name] += 1
            pairs[name, counts[name]] = [message, answer]
    return pairs


def _results(sent: Sequence[JsonObject]) -> dict[_Place, JsonObject]:
    """Returns the tool messages by the calls that they follow. Of two of one call the last counts."""
    counts: Counter[str] = Counter()
    by_place: dict[_Place, JsonObject] = {}
    for message in sent:
        counts.update(_call_counts([message]))
        if (name := _answered(message)) is not None:
            by_place[name, counts[name]] = message
    return by_place


def _call_counts(messages: Sequence[JsonObject]) -> Counter[str]:
    """Returns the number of calls that these messages make with each id."""
    return Counter(str(call.get("id")) for message in messages for call in _calls(message))


def _words(message: JsonObject) -> list[JsonObject]:
    """Returns the message of an assistant without its calls, if it has text besides them."""
    if not text_of(message).strip():
        return []
    return [{name: value for name, value in message.items() if name != "tool_calls"}]


def _calls(message: JsonObject) -> list[Mapping[str, Any]]:
    calls = message.get("tool_calls") if message.get("role") == "assistant" else None
    return [one for one in calls if isinstance(one, Mapping)] if isinstance(calls, list | tuple) else []


def _answered(message: JsonObject) -> str | None:
    name = message.get("tool_call_id") if message.get("role") == "tool" else None
    return name if isinstance(name, str) else None


def _value(message: JsonObject) -> Any:
    return client_tools.value(text_of(message))
