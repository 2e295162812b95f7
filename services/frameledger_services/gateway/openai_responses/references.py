"""Items of a request's `input` that are ids: of what a response before it has put out.

A client that resends its history may name what the server said and not say it again. The id of an item has that of its
response, so the item is read from the response's frames, which takes no longer the longer the conversation is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request

from frameledger_services.gateway.access import caller, read_log
from frameledger_services.gateway.openai_responses import response_ids, stored_responses
from frameledger_services.gateway.openai_responses.items import referenced, refuse
from frameledger_services.gateway.parts import Parts
from frameledger_services.gateway.problems import ProblemError

Item = Mapping[str, Any]

MARK = b'"id"'
"""What a body has that has a reference."""

MOST_RESPONSES = 500
"""Of how many responses one request may name items."""


async def stored_items(parts: Parts, request: Request, body: bytes) -> dict[str, Item]:
    """Returns, by their ids, the items that a body refers to. Left out are those that there are not, or that the caller
    may not see, and those of a response that is not over. Raises `bad-parameter` for too many, and `erased`."""
    by_response: dict[str, list[str]] = {}
    for item_id in _references(body) if MARK in body else ():
        if (response := response_ids.of_item(item_id)) is not None:
            by_response.setdefault(response, []).append(item_id)
    if len(by_response) > MOST_RESPONSES:
        refuse(
            "input",
            f"items of at most {MOST_RESPONSES} responses can be referred to; continue with `previous_response_id`.",
        )
    found: dict[str, Item] = {}
    for response, item_ids in by_response.items():
        output = await _output(parts, request, response)
        found |= {str(one["id"]): one for one in output if one["id"] in item_ids}
    return found


def _references(body: bytes) -> list[str]:
    try:
        given = json.loads(body)
    except (ValueError, RecursionError):
        # Whoever reads the body says what is wrong with it.
        return []
    listed = given.get("input") if isinstance(given, dict) else None
    found = [referenced(item) for item in listed] if isinstance(listed, list) else []
    return [one for one in found if one is not None]


async def _output(parts: Parts, request: Request, response: str) -> list[dict[str, Any]]:
    try:
        wanted = stored_responses.read_id(response, caller.of(request.scope))
        asked = await stored_responses.find(parts, wanted)
    except ProblemError as problem:
        if problem.word != "no-such-response":
            raise
        return []
    writer = await stored_responses.written(parts, wanted, asked)
    read_log.note(request.scope, wanted.context_id, wanted.version)
    return [] if writer.status == "in_progress" else writer.output()
