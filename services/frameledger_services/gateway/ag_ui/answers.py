"""Tool messages of a client as answers to calls that wait: how a front end does what a model asks of it.

The function is one of the conversation's, registered in a service, and all it does is to wait. A front end that names
it among its tools does the rest: the run ends with the call, and the next one brings its tool message.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from frameledger_services.gateway.ag_ui import messages, parts
from frameledger_services.gateway.ag_ui.run_input import Message
from frameledger_services.store.threads import Thread

Call = tuple[str, int]
"""A call: its id, and the version that requested it."""


def of_calls(thread: Thread, sent: Sequence[Message]) -> dict[Call, Message]:
    """Returns the messages that answer calls which wait, each by its call."""
    _, names = messages.shown(thread.messages)
    waiting = {
        names.name(one.tool_call_id): (one.tool_call_id, one.requested_version) for one in thread.waiting
    }
    found: dict[Call, Message] = {}
    for message in sent:
        if message.role == "tool" and message.tool_call_id in waiting:
            found[waiting[message.tool_call_id]] = message
    return found


def result(message: Message) -> Any:
    """Returns what a tool message says, as the value that its JSON is; else its text."""
    content = message.content if isinstance(message.content, str | list) else ""
    text = parts.text_of(content) or message.error or ""
    try:
        return json.loads(text)
    except ValueError:
        return text
