"""The publishing thread. It has its own event loop and client: TLS, DNS and rebalances never block the audio loop.

If the process dies, frames are lost that were captured less than a tick ago or are not acknowledged. There is no other
state. A frame that is published again keeps its id, so it counts once.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import logging
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar
from uuid import UUID

from frameledger_services.client import FramesRefusedError
from frameledger_services.client.delivery import Delivery
from frameledger_services.pipecat.captured_items import BACKLOG, CapturedItems
from frameledger_services.pipecat.outgoing import Encoder
from frameledger_services.pipecat.pending import Pending, Waiting

TICK_SECONDS = 0.02
CLOSE_SECONDS = 10.0
AT_EXIT_SECONDS = 2.0

MAX_PER_PASS = BACKLOG
"""Maximum frames that the thread encodes and publishes in one pass while the pipeline runs. That takes a fraction of a
millisecond, and then it sleeps. The limit is a count, because on a busy machine a time limit can pass before any item
is done."""

BACKLOG_SECONDS = 0.05
"""Pause after a pass if more items were queued than that. Each time the thread wakes, it takes the interpreter lock
from the audio loop, and a pass over twelve frames costs little more than over one. So under load passes are fewer, and
queued tokens share frames: some thousand tokens a second, or 240 other frames. Faster input waits; the audio loop does
not."""

SHORT_PAUSE_SECONDS = 0.012
"""Pause if items arrived during publishing, or encoded frames are queued after an outage of the broker."""

MAX_BATCH = 200
"""Maximum frames in a batch after the end of the pipeline, or during a flush."""

logger = logging.getLogger("frameledger.pipecat")

T = TypeVar("T")


class Outbox:
    """Publishes the captured `items` in order, each frame once."""

    def __init__(
        self,
        context_id: str,
        session: UUID,
        items: CapturedItems,
        connect: Callable[[], Any],
        *,
        resend_history: Callable[[], None] = lambda: None,
    ) -> None:
        self._context_id = context_id
        self._items = items
        self._connect = connect
        self._resend_history = resend_history
        self.encoder = Encoder(session)
        self._pending = Pending(self.encoder.gap, lambda: self.encoder.history(time.time_ns()))
        self._sending: list[Waiting] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._client: Any = None
        self._main: asyncio.Task[None] | None = None
        self._sleeping: asyncio.Future[None] | None = None
        self._meanwhile: asyncio.TimerHandle | None = None
        self._is_released = threading.Event()
        self._is_flushing = False
        self._closing = False
        self._is_stopped = False
        self._delivery = Delivery[Waiting](
            context_id,
            logger,
            frame=lambda one: one.frame,
            refused=self._replacement,
            waiting=lambda: (
                f"{self.unpublished} frames have waited for {self.lag_seconds:.0f} s; the conversation continues"
            ),
        )
        self.failures = 0

    @property
    def unpublished(self) -> int:
        return len(self._items) + len(self._pending) + len(self._sending)

    @property
    def refused(self) -> int:
        return self._delivery.refused

    @property
    def why(self) -> BaseException | None:
        """The error of the latest attempt to publish; None if it succeeded."""
        return self._delivery.why

    @property
    def dropped(self) -> int:
        return sum(self._pending.dropped.values())

    @property
    def oldest_ns(self) -> int | None:
        """The capture time of the oldest unpublished frame; None if all are published."""
        sending, items = self._sending, self._items
        oldest = sending[0].ns if sending else self._pending.oldest_ns
        if oldest is None and items:
            with suppress(IndexError):
                oldest = items.oldest_ns
        return oldest

    @property
    def lag_seconds(self) -> float:
        """The age of the oldest unpublished frame."""
        oldest = self.oldest_ns
        return 0.0 if oldest is None else max(0.0, (time.time_ns() - oldest) / 1e9)

    def start(self) -> None:
        """Start the thread. Does nothing if it has started. Raises OSError if there are no file descriptors."""
        if self._thread is not None:
            return
        # Not in the thread, for which this waits: it raises if there are no file descriptors.
        loop = asyncio.new_event_loop()
        self._client = self._connect()
        self._is_released = threading.Event()
        ready = threading.Event()

        def run() -> None:
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                runner.run(self._run(ready))

        self._thread = threading.Thread(target=run, name=f"frameledger {self._context_id}", daemon=True)
        self._thread.start()
        ready.wait()
        atexit.register(self._at_exit)

    def flush(self) -> None:
        """Publish all captured frames at once, without waiting for the next tick."""
        self._is_flushing = True
        if self._loop is not None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._wake)

    def call(self, work: Callable[[Any], Awaitable[T]]) -> concurrent.futures.Future[T]:
        """Run `work` in the thread with its client."""
        self.start()
        assert self._loop is not None

        async def run_work() -> T:
            return await work(self._client)

        return asyncio.run_coroutine_threadsafe(run_work(), self._loop)

    async def finish(self, within: float) -> None:
        """Publish all waiting frames, for at most `within` seconds, and end the thread. Does nothing if the thread has
        ended, or an earlier call has stopped it on timeout."""
        thread, loop = self._thread, self._loop
        if thread is None or loop is None or not thread.is_alive() or self._is_stopped:
            return
        self._closing = True
        self.flush()
        atexit.unregister(self._at_exit)
        await asyncio.to_thread(thread.join, within)
        # Only once, even for concurrent calls: a second cancellation would interrupt closing the client.
        if thread.is_alive() and not self._is_stopped:
            self._is_stopped = True
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._stop)

    def release(self) -> None:
        """End the thread without publishing; it closes its client. `start` creates both again."""
        loop = self._loop
        if self._thread is None or loop is None:
            return
        atexit.unregister(self._at_exit)
        if not self._is_stopped:
            with suppress(RuntimeError):  # it has ended
                loop.call_soon_threadsafe(self._stop)
        self._is_released.wait()
        self._thread = self._loop = self._main = None

    async def _run(self, ready: threading.Event) -> None:
        client, is_released = self._client, self._is_released
        self._loop = asyncio.get_running_loop()
        ready.set()
        self._main = asyncio.current_task()
        try:
            while not (self._closing and not self._items and not self._pending):
                await self._publish_some()
        except asyncio.CancelledError:
            pass
        finally:
            # From here on the thread uses only its client.
            is_released.set()
            with suppress(Exception):
                await asyncio.wait_for(client.close(), CLOSE_SECONDS)

    async def _publish_some(self) -> None:
        """Encode and publish some items, then sleep until there may be more."""
        had_backlog = self._encode()
        if self._pending:
            await self._publish()
        if self._is_paced:
            await self._sleep(self._pause(had_backlog))
            return
        if self._items or self._pending:
            return
        self._is_flushing = False
        # Check again: an item may have arrived, with a flush, before the flag was cleared.
        if not self._items and not self._closing:
            await self._sleep(TICK_SECONDS)

    def _pause(self, had_backlog: bool) -> float:
        if had_backlog and not self._pending:
            return BACKLOG_SECONDS
        return SHORT_PAUSE_SECONDS if self._items or self._pending else TICK_SECONDS

    async def _sleep(self, seconds: float) -> None:
        """Sleep for this time, or until a flush."""
        loop = asyncio.get_running_loop()
        self._sleeping = loop.create_future()
        timer = loop.call_later(seconds, self._wake)
        try:
            await self._sleeping
        finally:
            timer.cancel()

    def _wake(self) -> None:
        if self._sleeping is not None and not self._sleeping.done():
            self._sleeping.set_result(None)

    @property
    def _is_paced(self) -> bool:
        return not self._closing and not self._is_flushing

    def _stop(self) -> None:
        if self._main is not None:
            self._main.cancel()

    def _at_exit(self) -> None:
        """Called when the program exits without ending the pipeline."""
        self._closing = True
        if self._thread is not None:
            self._thread.join(AT_EXIT_SECONDS)

    def _encode(self) -> bool:
        """Encode the oldest items, or all of them during a flush. Returns whether more were queued than a pass encodes;
        then tokens share frames."""
        items = self._items
        left = MAX_PER_PASS if self._is_paced else len(items)
        has_backlog = len(items) > BACKLOG
        while items and left:
            left -= 1
            try:
                self._pending.add(self.encoder.encode(items.take(joined=has_backlog)))
            except Exception:
                # Later changes may depend on a lost change of messages, so all messages are published again.
                self.failures += 1
                self._resend_history()
                if self.failures == 1:
                    logger.exception("a captured frame of %s could not be encoded", self._context_id)
        return has_backlog

    def _replacement(self, rejected: Waiting, error: FramesRefusedError) -> Waiting | None:
        """Returns the frame that replaces one that the broker rejects."""
        logger.error("%s: the broker rejects a %s: %s", self._context_id, rejected.kind, error)
        return (
            None
            if rejected.kind == "pipecat/RefusedFrame"
            else self.encoder.replacement_of(rejected, str(error))
        )

    async def _publish(self) -> None:
        """Publish the oldest frames. If that takes longer than a tick, items are encoded in the meantime: only encoded
        frames are bounded, which matters during an outage of the broker."""
        self._sending = self._pending.take(MAX_PER_PASS if self._is_paced else MAX_BATCH)
        self._meanwhile = asyncio.get_running_loop().call_later(TICK_SECONDS, self._encode_meanwhile)
        try:
            await self._delivery.publish(self._client, self._sending)
        finally:
            self._meanwhile.cancel()
        self._sending = []

    def _encode_meanwhile(self) -> None:
        self._encode()
        pause = SHORT_PAUSE_SECONDS if self._items else TICK_SECONDS
        self._meanwhile = asyncio.get_running_loop().call_later(pause, self._encode_meanwhile)
