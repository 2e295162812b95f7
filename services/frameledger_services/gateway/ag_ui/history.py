"""Finds the new part of a resent history: a client of AG-UI sends all messages each time.

A client knows every message by the id that `messages` gave it, and sends its whole history. So:

1. A message with a known id is that message. A message with an unknown id is the next stored one if it has the same
   content (a client that keeps its own transcripts has its own ids), and otherwise it is new.
2. If all stored messages were sent unchanged, and the new ones come after them, the new ones are **appended**.
   Otherwise the history was edited and is **replaced**; the old one stays readable as the former era. Up to the first
   difference the stored messages are kept, with thoughts that no client has.
3. Whitespace in texts and the notation of JSON in results of calls make no difference. The last words of the assistant
   also match if the client has only their beginning, because it disconnected while they were streamed.
4. System and developer messages at the head that the client does not send stay: they are an operator's. Results of
   background calls, and what was said because of them, stay too: they may have arrived after the client disconnected.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from frameledger import async_tool_messages
from frameledger.async_tool_messages import CANCELLED
from frameledger_services.gateway import client_tools
from frameledger_services.gateway.ag_ui import content_parts, messages
from frameledger_services.gateway.ag_ui.run_input import Message
from frameledger_services.store.shown_messages import ShownMessage

INSTRUCTIONS = ("system", "developer")


@dataclass(frozen=True, slots=True)
class Plan:
    """What to publish so that the conversation equals the sent one."""

    kind: Literal["append", "replace"]
    messages: list[dict[str, Any]]
    """The messages to append, which may be none; or the whole new history. In the stored format."""

    ids: list[str | None]
    """The client's id of each message; None for one that it does not see."""


def plan(stored: Sequence[ShownMessage], sent: Sequence[Message], facts: Collection[str] = ()) -> Plan:
    """Returns the plan by the rules of this module. `facts` has the ids of calls that a client answered."""
    return _Comparison(stored, sent, facts).plan()


def as_stored(message: Message) -> dict[str, Any]:
    """Returns a client's message in the stored format."""
    content = message.content if isinstance(message.content, str | list) else ""
    fields: dict[str, Any] = {"role": message.role}
    if message.name is not None:
        fields["name"] = message.name
    match message.role:
        case "user":
            fields["content"] = content_parts.to_stored(content)
        case "tool":
            fields["tool_call_id"] = message.tool_call_id or ""
            fields["content"] = content_parts.text_of(content) or message.error or ""
        case "assistant" if message.tool_calls:
            fields["tool_calls"] = [call.model_dump() for call in message.tool_calls]
            if message.content is not None:
                fields["content"] = content_parts.text_of(content)
        case _:
            fields["content"] = content_parts.text_of(content)
    return fields


class _Comparison:
    def __init__(
        self, stored: Sequence[ShownMessage], sent: Sequence[Message], facts: Collection[str]
    ) -> None:
        self._stored = stored
        self._sent = sent
        self._facts = frozenset(facts)
        shown, _ = messages.shown_with_places(stored)
        self._places = [place for place, _ in shown]
        """The index in `stored` of each shown message."""

        self._shown = [message for _, message in shown]
        self._ids = [str(message["id"]) for message in self._shown]
        answers = [number for number, one in enumerate(self._shown) if one["role"] == "assistant"]
        self._last_answer = answers[-1] if answers else None
        self._needed: list[int] = []
        """The numbers of the shown messages that the client must have."""

        self._left: defaultdict[str, list[int]] = defaultdict(list)
        """The numbers of the others, by their calls."""

        for number, message in enumerate(self._shown):
            if self._may_be_missing(number):
                self._left[message["toolCallId"]].append(number)
            else:
                self._needed.append(number)
        self._matches: list[int | None] = []
        """For each sent message, the number of the matching shown message; None for a new one."""

    def plan(self) -> Plan:
        self._match()
        first_new = next((n for n, match in enumerate(self._matches) if match is None), len(self._sent))
        new = self._sent[first_new:]
        is_edited = any(match is not None for match in self._matches[first_new:]) or self._missing()
        if not is_edited:
            return Plan("append", [as_stored(one) for one in new], [one.id for one in new])
        return self._replaced()

    def _match(self) -> None:
        place = self._head()
        known = {message_id: number for number, message_id in enumerate(self._ids)}
        matched: set[int] = set()
        for message in self._sent:
            sent = _view(message)
            candidates = [known[message.id]] if message.id in known else self._next(place, sent)
            match = next((number for number in candidates if self._is_same(number, sent)), None)
            if match in matched:
                match = None
            if match is not None:
                matched.add(match)
                place = max(place, match + 1)
            self._matches.append(match)

    def _next(self, place: int, sent: Mapping[str, Any]) -> list[int]:
        """Returns the numbers of the shown messages that may match a sent one: the first from `place` on that the
        client must have, and the first of the same call before that one."""
        end = _first(self._needed, place, len(self._shown))
        left = _first(self._left.get(sent.get("toolCallId") or "", ()), place, end)
        return [number for number in sorted({min(left, end), end}) if number < len(self._shown)]

    def _head(self) -> int:
        """Returns the number of shown messages at the beginning that are instructions and were not sent, and so are an
        operator's."""
        sent_ids, sent_texts = {one.id for one in self._sent}, {_text(_view(one)) for one in self._sent}
        for number, message in enumerate(self._shown):
            is_sent = message["id"] in sent_ids or _text(message) in sent_texts
            if message["role"] not in INSTRUCTIONS or is_sent:
                return number
        return len(self._shown)

    def _missing(self) -> bool:
        """Whether the client left out a message that it had received. Reports of background calls at the end, and what
        follows them, may be newer."""
        matched = set(self._matches)
        shown = range(self._head(), len(self._shown))
        missing = [n for n in shown if n not in matched and not self._may_be_missing(n)]
        if not missing:
            return False
        is_tail = not any(n in matched for n in range(missing[0], len(self._shown)))
        return not (is_tail and self._is_report(missing[0]))

    def _may_be_missing(self, number: int) -> bool:
        """Whether it is the result of a call that was cancelled because its client abandoned it: no client received
        that."""
        message = self._shown[number]
        return message["role"] == "tool" and message.get("content") == CANCELLED

    def _is_report(self, number: int) -> bool:
        payload = async_tool_messages.parse_message(self._stored[self._places[number]].message)
        return payload is not None and payload.kind != "started"

    def _is_same(self, number: int, sent: Mapping[str, Any]) -> bool:
        shown = self._shown[number]
        if _key(shown) == _key(sent) or self._is_fact(shown, sent):
            return True
        text, beginning = _text(shown), _text(sent)
        return (
            number == self._last_answer
            and sent["role"] == "assistant"
            and not sent.get("toolCalls")
            and not shown.get("toolCalls")
            and text.startswith(beginning)
        )

    def _is_fact(self, shown: Mapping[str, Any], sent: Mapping[str, Any]) -> bool:
        """Whether both are the result of the same call, which a client answered. Then the stored one counts, whatever
        was sent."""
        call = shown.get("toolCallId")
        return call is not None and call == sent.get("toolCallId") and call in self._facts

    def _replaced(self) -> Plan:
        """Returns the plan with the stored messages up to the first difference, followed by the sent ones."""
        same, shown = 0, self._head()
        for match in self._matches:
            if match is None or not all(map(self._may_be_missing, range(shown, match))) or match < shown:
                break
            same, shown = same + 1, match + 1
        while shown < len(self._shown) and self._may_be_missing(shown):
            shown += 1
        end = self._places[shown - 1] + 1 if shown else 0
        named = dict(zip(self._places, self._ids, strict=True))
        history: list[dict[str, Any]] = [dict(one.message) for one in self._stored[:end]]
        ids: list[str | None] = [named.get(place) for place in range(end)]
        for match, message in zip(self._matches[same:], self._sent[same:], strict=True):
            history.append(
                as_stored(message) if match is None else dict(self._stored[self._places[match]].message)
            )
            ids.append(message.id)
        return Plan("replace", history, ids)


def _view(sent: Message) -> Mapping[str, Any]:
    """Returns a sent message in the form of a shown one, for comparison."""
    stored = as_stored(sent)
    calls = [
        {"id": call["id"], "type": "function", "function": dict(call["function"])}
        for call in stored.get("tool_calls", ())
    ]
    content = content_parts.to_client(stored["content"]) if "content" in stored else None
    return {
        "role": sent.role,
        **({} if content is None else {"content": content}),
        **({"toolCalls": calls} if calls else {}),
        **({"toolCallId": sent.tool_call_id} if sent.role == "tool" else {}),
    }


def _key(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    compared = {
        "role": message["role"],
        "calls": message.get("toolCalls") or [],
        "call": message.get("toolCallId"),
        "text": client_tools.value(_text(message)) if message["role"] == "tool" else _text(message),
        "other": [one for one in content if one.get("type") != "text"] if isinstance(content, list) else [],
    }
    return json.dumps(compared, sort_keys=True)


def _text(message: Mapping[str, Any]) -> str:
    return " ".join(content_parts.text_of(message.get("content")).split())


def _first(numbers: Sequence[int], begin: int, otherwise: int) -> int:
    """Returns the first of the ascending numbers that is at least `begin`, else `otherwise`."""
    place = bisect_left(numbers, begin)
    return numbers[place] if place < len(numbers) else otherwise
