"""Reads the items that a request's `input` names by their ids: output of earlier responses.

A client that resends its history may name what the server said instead of repeating it. The id of an item contains that
of its response, so the item is read from the response's frames, in a time that does not depend on the length of the
conversation.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request

from frameledger_services.gateway.access import caller, read_log
from frameledger_services.gateway.body import MAX_BYTES
from frameledger_services.gateway.dependencies import Dependencies
from frameledger_services.gateway.openai_responses import response_ids, stored_responses
from frameledger_services.gateway.openai_responses.items import referenced, refuse
from frameledger_services.gateway.problems import ProblemError

Item = Mapping[str, Any]

MAX_RESPONSES = 500
"""The maximum number of responses whose items one request may name."""


async def stored_items(dependencies: Dependencies, request: Request, value: Any) -> dict[str, Item]:
    """Returns, by their ids, the items that the `input` of a body refers to. Items that do not exist, that the caller
    may not see, or whose response is in progress are left out. Raises `bad-parameter` for too many, `too-large` if the
    items, each counted once per reference, are together larger than a body may be, and `erased`."""
    by_response: dict[str, Counter[str]] = {}
    for item_id in _references(value):
        if (response := response_ids.of_item(item_id)) is not None:
            by_response.setdefault(response, Counter())[item_id] += 1
    if len(by_response) > MAX_RESPONSES:
        refuse(
            "input",
            f"items of at most {MAX_RESPONSES} responses can be referred to; continue with `previous_response_id`.",
        )
    stored: dict[str, Item] = {}
    size = 0
    for response, counts in by_response.items():
        for item in await _output(dependencies, request, response):
            if (item_id := str(item["id"])) in counts:
                stored[item_id] = item
                size += counts[item_id] * len(json.dumps(item, default=list, ensure_ascii=False))
        if size > MAX_BYTES:
            raise ProblemError(
                "too-large", f"The items that the input refers to have more than {MAX_BYTES} bytes."
            )
    return stored


def _references(value: Any) -> list[str]:
    ids = map(referenced, value) if isinstance(value, list) else ()
    return [one for one in ids if one is not None]


async def _output(dependencies: Dependencies, request: Request, response: str) -> list[dict[str, Any]]:
    try:
        response_id = stored_responses.read_id(response, caller.of(request.scope))
        stored_request = await stored_responses.find(dependencies, response_id)
    except ProblemError as problem:
        if problem.word != "no-such-response":
            raise
        return []
    writer = await stored_responses.written(dependencies, response_id, stored_request)
    read_log.note(request.scope, response_id.context_id, response_id.version)
    return [] if writer.status == "in_progress" else writer.output()
