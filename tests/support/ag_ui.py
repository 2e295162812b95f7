"""The rules of AG-UI 1.0 for a stream of events, as an oracle, and a client that follows them.

The rules are those of the pages "Runs and steps", "Streaming messages", "Reasoning" and "State" of its specification;
shapes are the models of the package `ag-ui-protocol`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ag_ui.core import Event as AnyEvent
from pydantic import BaseModel, TypeAdapter

Event = Mapping[str, Any]

_EVENTS: TypeAdapter[Any] = TypeAdapter(AnyEvent)

# For each kind of what streams: its events, and the field by which they name it.
_OPENS = {
    "TEXT_MESSAGE_START": ("text", "messageId"),
    "TOOL_CALL_START": ("call", "toolCallId"),
    "REASONING_START": ("span", "messageId"),
    "REASONING_MESSAGE_START": ("thought", "messageId"),
}
_CONTINUES = {
    "TEXT_MESSAGE_CONTENT": ("text", "messageId"),
    "TOOL_CALL_ARGS": ("call", "toolCallId"),
    "REASONING_MESSAGE_CONTENT": ("thought", "messageId"),
}
_CLOSES = {
    "TEXT_MESSAGE_END": ("text", "messageId"),
    "TOOL_CALL_END": ("call", "toolCallId"),
    "REASONING_MESSAGE_END": ("thought", "messageId"),
    "REASONING_END": ("span", "messageId"),
}


def parse(event: Event) -> Any:
    """Returns the package's model of an event. It has no field that the protocol does not describe, and none that is
    null for being absent."""
    found = _EVENTS.validate_json(json.dumps(event))
    _check_known(found, str(event["type"]))
    assert json.loads(found.model_dump_json(by_alias=True)) == json.loads(json.dumps(event))
    return found


def _check_known(value: Any, place: str) -> None:
    if isinstance(value, BaseModel):
        assert not value.model_extra, f"{place} has {value.model_extra}"
        for name in type(value).model_fields:
            _check_known(getattr(value, name), f"{place}.{name}")
    elif isinstance(value, list):
        for one in value:
            _check_known(one, place)


@dataclass
class Consumer:
    """Takes the events of a stream, asserts that their order is the protocol's, and holds what a client then holds."""

    messages: dict[str, dict[str, Any]] = field(default_factory=dict)
    open: set[tuple[str, str]] = field(default_factory=set)
    run: Event | None = None
    """The event that began the run that is open."""

    ended: str | None = None
    """The type of the last event that ended a run."""

    outcome: Mapping[str, Any] | None = None

    @property
    def reads_text(self) -> bool:
        """Whether a message of text is open."""
        return any(kind == "text" for kind, _ in self.open)

    def take_all(self, events: Iterable[Event]) -> None:
        for event in events:
            self.take(event)

    def take(self, event: Event) -> None:
        parse(event)
        kind = event["type"]
        if self.run is None:
            assert kind in ("RUN_STARTED", "RUN_ERROR"), f"{kind} outside a run"
            assert kind == "RUN_STARTED" or self.ended != "RUN_ERROR", "two errors of one run"
        match kind:
            case "RUN_STARTED":
                assert self.run is None, "a run within a run"
                self.run, self.open = event, set()
            case "RUN_FINISHED":
                assert self.run is not None
                assert not self.open, f"open at the end: {self.open}"
                assert [event[one] for one in ("threadId", "runId")] == [
                    self.run[one] for one in ("threadId", "runId")
                ]
                self.run, self.ended, self.outcome = None, kind, event.get("outcome")
            case "RUN_ERROR":
                self.run, self.ended = None, kind
            case "MESSAGES_SNAPSHOT":
                self._state(event["messages"])
            case "TOOL_CALL_RESULT":
                assert event["messageId"] not in self.messages, "a message twice"
                self.messages[event["messageId"]] = {
                    "id": event["messageId"],
                    "role": "tool",
                    "toolCallId": event["toolCallId"],
                    "content": event["content"],
                }
            case _:
                self._stream(kind, event)

    def _state(self, messages: list[dict[str, Any]]) -> None:
        stated = {one["id"]: dict(one) for one in messages}
        assert len(stated) == len(messages), "ids that are not unique"
        thoughts = {one["id"]: one for one in self.messages.values() if one["role"] == "reasoning"}
        self.messages = thoughts | stated

    def _stream(self, kind: str, event: Event) -> None:
        if kind in _OPENS:
            what, name = _OPENS[kind]
            one = (what, event[name])
            assert one not in self.open, f"{one} is open already"
            self.open.add(one)
            self._begin(what, event)
        elif kind in _CONTINUES:
            what, name = _CONTINUES[kind]
            assert (what, event[name]) in self.open, f"{kind} of what is not open"
            self._go_on(what, event)
        else:
            what, name = _CLOSES[kind]
            assert (what, event[name]) in self.open, f"{kind} of what is not open"
            self.open.discard((what, event[name]))

    def _begin(self, what: str, event: Event) -> None:
        match what:
            case "text" | "thought":
                assert event["messageId"] not in self.messages, "it would be appended to another message"
                new = {"id": event["messageId"], "role": event["role"], "content": ""}
                self.messages[event["messageId"]] = new
            case "call":
                assert self._call(event["toolCallId"]) is None, "it would be appended to another call"
                call = {
                    "id": event["toolCallId"],
                    "type": "function",
                    "function": {"name": event["toolCallName"], "arguments": ""},
                }
                message_id = event["parentMessageId"]
                self.messages.setdefault(
                    message_id, {"id": message_id, "role": "assistant", "toolCalls": []}
                )["toolCalls"].append(call)

    def _go_on(self, what: str, event: Event) -> None:
        if what == "call":
            call = self._call(event["toolCallId"])
            assert call is not None
            call["function"]["arguments"] += event["delta"]
        else:
            self.messages[event["messageId"]]["content"] += event["delta"]

    def _call(self, call: str) -> dict[str, Any] | None:
        calls = [one for message in self.messages.values() for one in message.get("toolCalls", ())]
        return next((one for one in calls if one["id"] == call), None)
