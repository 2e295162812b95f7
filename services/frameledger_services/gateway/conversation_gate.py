"""Checks whether a conversation can be asked now. The compatible APIs do this before they publish a question.

A conversation is asked only while nothing in it is being answered. A request waits briefly for the previous answer. It
is refused with `conversation-busy` if that answer does not end, or if no question would be answered at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from frameledger_services.gateway.dependencies import Dependencies
from frameledger_services.gateway.live.hub import TooManyFollowersError
from frameledger_services.gateway.problems import ProblemError

TRIES = 5
"""How often a request is compared with the conversation, because another client published in between, or because the
request itself published a part: results of calls, or cancellations."""

BUSY_SECONDS = 3.0
"""How long a request waits for the end of the previous answer: a client that stops an answer asks again at once."""

CHANGING = "Other clients keep publishing to it."


def busy(context_id: str, why: str, headers: Mapping[str, str] | None = None) -> ProblemError:
    """Returns the problem that a conversation cannot be asked now. `why` is a sentence with the reason."""
    return ProblemError(
        "conversation-busy",
        f"The conversation {context_id!r} cannot be asked now. {why}",
        headers=headers,
        context_id=context_id,
    )


def check_answerable(
    context_id: str, *, is_parked: bool, is_recording: bool, headers: Mapping[str, str] | None = None
) -> None:
    """Raise `conversation-busy` if nothing would answer a question in this conversation."""
    if is_parked:
        why = "It is parked: its newest frames are stored and not folded (`frameledger parked`)."
        raise busy(context_id, why, headers)
    if is_recording:
        why = "It is a recording of a conversation elsewhere: no worker answers it here."
        raise busy(context_id, why, headers)


def deadline() -> float:
    """Returns the time until which a request that starts now waits for the previous answer, on the event loop's
    clock."""
    return asyncio.get_running_loop().time() + BUSY_SECONDS


async def wait_for_change(
    dependencies: Dependencies,
    context_id: str,
    version: int,
    deadline: float,
    headers: Mapping[str, str] | None = None,
) -> None:
    """Wait until a conversation that is being answered has frames after `version`, at most until `deadline` or until
    the gateway begins to stop. Raises `conversation-busy` if the deadline has already passed, and `draining` if the
    gateway is already stopping."""
    # Its followers are closed, so the wait would end at once.
    dependencies.check_not_stopping(headers)
    within = deadline - asyncio.get_running_loop().time()
    answering = busy(context_id, "It is being answered.", headers)
    if within <= 0:
        raise answering
    try:
        follower = dependencies.hub.follow(context_id, version, ())
    except TooManyFollowersError:
        raise answering from None
    try:
        async with asyncio.timeout(within):
            # The first chunk is sent at once and may have no new frames.
            while (chunk := await follower.next(within)) is not None and chunk.version == version:
                pass
    except TimeoutError:
        pass
    finally:
        follower.close()
