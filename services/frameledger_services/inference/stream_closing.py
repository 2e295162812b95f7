"""Closes a provider's stream, in time and without hiding that the run was stopped."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

from frameledger.frames import AnyFrame
from frameledger_services import logs
from frameledger_services.providers.errors import ProviderError

CLOSING_SECONDS = 5.0
"""How long a provider may take to close its stream."""

_log = logs.get_logger("inference")


@asynccontextmanager
async def closing_in_time(frames: AsyncGenerator[AnyFrame, None]) -> AsyncIterator[AsyncIterator[AnyFrame]]:
    """Yields the answer's frames. When the block is left, the stream is closed within `CLOSING_SECONDS`.

    Raises `CancelledError` if the run is stopped, even if closing the stream raised another error: that would count as
    a failure of the answer, and the model would be called again.
    """
    task = asyncio.current_task()
    assert task is not None, "an await is in a task"
    cancelled_before = task.cancelling()
    try:
        try:
            yield frames
        finally:
            try:
                async with asyncio.timeout(CLOSING_SECONDS):
                    await frames.aclose()
            except (TimeoutError, ProviderError) as error:
                _log.warning("run.stream_not_closed", reason=str(error))
    except BaseException as error:
        if isinstance(error, asyncio.CancelledError) or task.cancelling() == cancelled_before:
            raise
        _log.warning("run.stream_not_closed", reason=str(error))
        raise asyncio.CancelledError from error
