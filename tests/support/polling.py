"""The pause between two looks at what notifies nobody: who looks without one takes the processor from what it waits
for."""

import asyncio
import threading
from contextlib import suppress

LOOK_AGAIN = 0.02
_NOTHING_TELLS = threading.Event()


def pause(seconds: float = LOOK_AGAIN) -> None:
    _NOTHING_TELLS.wait(seconds)


async def look_again(seconds: float = LOOK_AGAIN) -> None:
    """The same in an event loop."""
    with suppress(TimeoutError):
        await asyncio.wait_for(asyncio.Event().wait(), seconds)
