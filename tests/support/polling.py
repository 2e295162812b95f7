"""Pauses between two checks of something that sends no notification. Polling without a pause would slow down what a
test waits for."""

import asyncio
import threading
from contextlib import suppress

POLL_SECONDS = 0.02

NOTIFICATION_SECONDS = 0.05
"""Maximum wait for a notification before the next check, because a change may come without one."""

_NEVER_SET = threading.Event()


def pause(seconds: float = POLL_SECONDS) -> None:
    _NEVER_SET.wait(seconds)


async def look_again(seconds: float = POLL_SECONDS) -> None:
    """The same in an event loop."""
    with suppress(TimeoutError):
        await asyncio.wait_for(asyncio.Event().wait(), seconds)
