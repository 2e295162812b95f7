"""Whether a question can be published to a conversation now. Both compatible APIs check it before they do so.

A question is published only while nothing in the conversation is being answered. A request waits a moment for the
previous answer. It is refused with `conversation-busy` if that does not end, and if no question would be answered at
all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from frameledger_services.gateway.dependencies import Dependencies
from frameledger_services.gateway.live.hub import TooManyFollowersError
from frameledger_services.gateway.problems import ProblemError

TRIES = 5
"""How often a request is compared with the conversation anew, because another client published in between, or because
the request itself published a part: results of calls, or cancellations."""

BUSY_SECONDS = 3.0
"""How long a request waits for the previous answer to end: a client that stops an answer asks again at once."""

CHANGING = "Other clients keep publishing to it."


def busy(context_id: str, why: str, headers: Mapping[str, str] | None = None) -> ProblemError:
    """Returns the problem that a conversation cannot be asked now, for a reason that is a sentence."""
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
    """Returns until when a request that starts now waits for the previous answer, in the time of the event loop."""
    return asyncio.get_running_loop().time() + BUSY_SECONDS


async def wait_for_change(
    dependencies: Dependencies,
    context_id: str,
    version: int,
    deadline: float,
    headers: Mapping[str, str] | None = None,
) -> None:
    """Wait until a conversation that is being answered has frames after `version`; returns at `deadline` anyway,
    and when the gateway begins to stop. Raises `conversation-busy` if that time has passed, and `draining` if the
    gateway is stopping."""
    # Followers are closed then: nothing would be waited for.
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
            # The first chunk is sent at once and may have nothing new.
            while (chunk := await follower.next(within)) is not None and chunk.version == version:
                pass
    except TimeoutError:
        pass
    finally:
        follower.close()
