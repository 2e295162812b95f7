"""Finds what a request for a response continues: the conversation that it names, or the previous response.

A response is continued from its end: the history at that version, followed by the new messages, is compared with the
conversation like one that a client of chat completions sends. If nobody has asked anything since, the new messages are
appended. If somebody has, the history becomes a new era, and what was said since stays readable in the former one.

Some frameworks send what the history has already, from the question of a run on, with each previous response of that
run. It is left out (`new_messages`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Container, Sequence
from dataclasses import replace

from starlette.requests import Request

from frameledger.tools import tool_names
from frameledger_services.gateway import conversation_gate
from frameledger_services.gateway.access import caller
from frameledger_services.gateway.dependencies import Dependencies
from frameledger_services.gateway.openai import client_answers, conversation, history
from frameledger_services.gateway.openai.conversation import Named
from frameledger_services.gateway.openai.history import Held
from frameledger_services.gateway.openai.seen_messages import JsonObject
from frameledger_services.gateway.openai_responses import stored_responses
from frameledger_services.gateway.openai_responses.items import refuse
from frameledger_services.gateway.openai_responses.request import INSTRUCTION, ResponseRequest
from frameledger_services.gateway.openai_responses.response_ids import ResponseId
from frameledger_services.store import contexts, conversation_state
from frameledger_services.store.answered_requests import LatestRequest, latest_request

PREVIOUS = "previous_response_id"


async def continued(
    dependencies: Dependencies, request: Request, response_request: ResponseRequest
) -> tuple[ResponseRequest, Named]:
    """Returns the request with the history that it continues, and the conversation to ask. Publishes nothing.

    Raises `bad-parameter`, `no-such-response`, `erased`, and `conversation-busy` if the previous response does not end.
    """
    if response_request.previous_response_id is None:
        # The header of a front end is not read: it names a chat whose whole history is sent each time.
        named = conversation.named(request, response_request.conversation, "")
        latest = await dependencies.database.read(latest_request, named.context_id, INSTRUCTION)
        return replace(response_request, replaced_instruction=_instruction(latest)), named
    previous = stored_responses.read_id(
        response_request.previous_response_id, caller.of(request.scope), param=PREVIOUS
    )
    if conversation.of_header(request) not in (None, previous.context_id):
        refuse(PREVIOUS, f"the header {conversation.HEADER} names another conversation than this response's.")
    stored = await dependencies.database.read(
        contexts.context, previous.context_id, await _end(dependencies, previous)
    )
    latest = await dependencies.database.read(latest_request, previous.context_id, INSTRUCTION)
    messages = stored.context.to_wire()["messages"]
    # In a thread: both may have megabytes.
    new = await asyncio.to_thread(
        new_messages, messages, response_request.messages, tool_names(response_request.tools)
    )
    return (
        replace(
            response_request,
            messages=(*messages, *new),
            is_only_new=False,
            replaced_instruction=_instruction(latest),
        ),
        Named(previous.context_id, "client"),
    )


def new_messages(
    stored: Sequence[JsonObject], sent: Sequence[JsonObject], functions: Container[str]
) -> Sequence[JsonObject]:
    """Returns the sent messages without those that repeat the end of the stored ones. Results of calls stay.
    `functions` are the client's own."""
    calls = set(client_answers.call_ids(stored)).intersection(client_answers.call_ids(sent))
    before_calls = client_answers.before_calls(stored, functions)
    held = [Held(one, may_be_left_out=is_beside) for one, is_beside in zip(stored, before_calls, strict=True)]
    rest = client_answers.rest(sent, calls)
    end = history.repeated_end(held, rest, made=client_answers.made(sent, calls))
    if end is None:
        return sent
    results = [one for one in sent if one.get("tool_call_id") in calls]
    return [*results, *history.plan(end, rest).messages]


async def _end(dependencies: Dependencies, previous: ResponseId) -> int:
    """Returns the version at which a response ends, once it is over: that of the next question, or the current one.

    Whether anything is in progress is read first. A question that is asked after that is found by the next read, or
    comes after the returned version and is found by the comparison of histories.
    """
    headers = conversation.in_header(previous.context_id)
    deadline = conversation_gate.deadline()
    while True:
        goes_on, version = await dependencies.database.read(conversation_state.goes_on, previous.context_id)
        stored_request = await stored_responses.find(dependencies, previous, PREVIOUS)
        if stored_request.next_version is not None:
            return stored_request.next_version - 1
        if not goes_on:
            return version
        await conversation_gate.wait_for_change(dependencies, previous.context_id, version, deadline, headers)


def _instruction(latest: LatestRequest | None) -> str | None:
    """Returns the instruction of the latest request for a response, if the conversation still has it."""
    if latest is None or not latest.noted.get("has_instructions"):
        return None
    instruction = latest.settings.get(INSTRUCTION)
    return instruction if isinstance(instruction, str) else None
