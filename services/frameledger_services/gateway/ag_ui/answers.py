"""Reads the tool messages of a client as answers to waiting calls.

The function is one that the front end defined (RA5.client), or a function of a service that only waits and that the
front end lists among its tools. The run ends with the call, and the client's next request has the tool message.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from frameledger import async_tool_messages
from frameledger_services.gateway import client_tools
from frameledger_services.gateway.ag_ui import content_parts, messages
from frameledger_services.gateway.ag_ui.run_input import Message
from frameledger_services.store.client_calls import ClientCall
from frameledger_services.store.conversation_state import Thread

CallKey = tuple[str, int]
"""A call: its id, and the version that requested it."""


def of_calls(thread: Thread, sent: Sequence[Message]) -> dict[CallKey, Message]:
    """Returns the messages that answer waiting calls, each by its call."""
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
    """Returns the call of the last sent result, if it is settled."""
    last = sent[-1] if sent else None
    if last is None or last.role != "tool" or last.tool_call_id is None:
        return None
    call = known.get(last.tool_call_id)
    return None if call is None or call.settled_version is None else call


def settled_by_another_client(
    thread: Thread, last: Message, call: ClientCall, given_as: str | None
) -> int | None:
    """Returns the version at which another client settled the call of the last sent result, or None if the sent result
    settled it, or if a user has spoken since.

    `given_as` is the id of the message that settled it: two clients may send the same result under different ids. The
    stored result also has an id of our own, under which any client may have received it.
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
    """Returns the messages that answer none of the calls with these ids."""
    return [one for one in sent if one.role != "tool" or one.tool_call_id not in answered or _is_report(one)]


def result(message: Message) -> Any:
    """Returns the result in a tool message: the value of its text (`client_tools.value`)."""
    return client_tools.value(_text(message))


def _text(message: Message) -> str:
    content = message.content if isinstance(message.content, str | list) else ""
    return content_parts.text_of(content) or message.error or ""


def _is_report(message: Message) -> bool:
    """Whether it is the stored message of a background call, sent back."""
    return async_tool_messages.parse_message({"role": "tool", "content": _text(message)}) is not None
