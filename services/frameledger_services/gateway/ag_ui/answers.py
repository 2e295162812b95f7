"""Tool messages of a client as answers to calls that wait: how a front end does what a model asks of it.

The function is one that the front end brought (RA5.client), or one that a service registered, and all it does is to
wait, and which the front end names among its tools. The run ends with the call, and the next one brings its tool
message.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from frameledger import async_tool_messages
from frameledger_services.gateway import client_tools
from frameledger_services.gateway.ag_ui import messages, parts
from frameledger_services.gateway.ag_ui.run_input import Message
from frameledger_services.store.client_calls import ClientCall
from frameledger_services.store.conversation_state import Thread

CallKey = tuple[str, int]
"""A call: its id, and the version that requested it."""


def of_calls(thread: Thread, sent: Sequence[Message]) -> dict[CallKey, Message]:
    """Returns the messages that answer calls which wait, each by its call."""
    _, names = messages.shown(thread.messages)
    waiting = {
        names.name(one.tool_call_id): (one.tool_call_id, one.requested_version) for one in thread.waiting
    }
    by_call: dict[CallKey, Message] = {}
    for message in sent:
        if message.role == "tool" and message.tool_call_id in waiting and not _is_report(message):
            by_call[waiting[message.tool_call_id]] = message
    return by_call


def last_answered(sent: Sequence[Message], known: Mapping[str, ClientCall]) -> ClientCall | None:
    """Returns the call whose result is the last that was sent, if it is settled."""
    last = sent[-1] if sent else None
    if last is None or last.role != "tool" or last.tool_call_id is None:
        return None
    call = known.get(last.tool_call_id)
    return None if call is None or call.settled_version is None else call


def told_otherwise(thread: Thread, last: Message, call: ClientCall, given_as: str | None) -> int | None:
    """Returns the version at which this call was settled whose result is the last that was sent, if that is another
    than what settled it, and nobody has spoken since: two clients did the same, and this one was the later.

    `given_as` is the id of the message that settled it. Two clients may have the same result; their messages have not
    the same id. The one that is stored has one of ours too, by which every client may know it.
    """
    ours = messages.result_message_id(str(last.tool_call_id))
    if call.result == result(last) and (given_as is None or last.id in (given_as, ours)):
        return None
    shown, _ = messages.shown(thread.messages)
    for message in reversed(shown):
        if message["role"] == "user":
            return None
        if message.get("toolCallId") == last.tool_call_id:
            return call.settled_version
    return None


def without(sent: Sequence[Message], answered: Collection[str | None]) -> list[Message]:
    """Returns the messages that answer none of the calls of these ids."""
    return [one for one in sent if one.role != "tool" or one.tool_call_id not in answered or _is_report(one)]


def result(message: Message) -> Any:
    """Returns what a tool message says: the value of its text (`client_tools.value`)."""
    return client_tools.value(_text(message))


def _text(message: Message) -> str:
    content = message.content if isinstance(message.content, str | list) else ""
    return parts.text_of(content) or message.error or ""


def _is_report(message: Message) -> bool:
    """Whether it is what is stored of a call that runs in the background, sent back."""
    return async_tool_messages.parse_message({"role": "tool", "content": _text(message)}) is not None
