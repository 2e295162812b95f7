"""`on_context_updated`: who gave a result is told when it is folded as applied. That may be lost with the process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from frameledger.frames import FunctionCallResultFrame, FunctionCallResultProperties
from frameledger_services.functions.call_frames import Call
from frameledger_services.functions.ledger import FOLDED_SECONDS
from frameledger_services.functions.surroundings import Surroundings

_log = structlog.get_logger("functions")


def watch(
    around: Surroundings,
    call: Call,
    properties: FunctionCallResultProperties | None,
    frame: FunctionCallResultFrame,
) -> None:
    """Begin to wait for the frame, which is about to be published, if somebody is to be told of it."""
    updated = None if properties is None else properties.on_context_updated
    if updated is not None and frame.id is not None:
        around.tails.start(_tell(around, call, updated, frame.id))


async def _tell(
    around: Surroundings, call: Call, updated: Callable[[], Awaitable[None]], frame_id: str
) -> None:
    try:
        async with (
            asyncio.timeout(FOLDED_SECONDS),
            around.ledger.folding(call.context_id, frame_id) as folded,
        ):
            standing = await folded
    except TimeoutError:
        _log.warning("a result is not folded yet; on_context_updated is not called", **call.names())
        return
    if standing.outcome == "applied":
        try:
            await updated()
        except Exception:
            _log.exception("on_context_updated failed", **call.names())
