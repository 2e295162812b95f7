"""The thread that publishes, with its own event loop and client, so that TLS, DNS and rebalances never block the audio
loop.

If the process dies, frames are lost that were captured less than a tick ago or were not acknowledged yet. No other
state is kept here. A frame that is published again keeps its id, so it counts once.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import logging
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar
from uuid import UUID

from frameledger_services.client import FramesRefusedError
from frameledger_services.client.delivery import Delivery
from frameledger_services.pipecat.capture import Item
from frameledger_services.pipecat.joined_tokens import take_joined
from frameledger_services.pipecat.outgoing import Encoder
from frameledger_services.pipecat.pending import Pending, Waiting

TICK_SECONDS = 0.02
CLOSE_SECONDS = 10.0
AT_EXIT_SECONDS = 2.0

AT_ONCE = 12
"""While the pipeline runs, the thread encodes and publishes at most this number of frames in one pass, which takes a
fraction of a millisecond, and then sleeps. The limit is a count, because on a busy machine a time limit can pass before
any item is done."""

CROWDED_SECONDS = 0.05
"""How long it sleeps if more than that waited. Each time that the thread wakes, the audio loop has to give it the
interpreter lock and get it back, and most of what a pass costs is the same for one frame and for twelve. So where many
items come, passes are fewer, and tokens that wait share frames: some thousand tokens a second, or 240 other frames.
Faster input waits; the audio loop does not."""

LET_GO_SECONDS = 0.012
"""How long it sleeps if some came while it published, or encoded frames wait because the broker was away."""

AT_THE_END = 200
"""Frames in a batch once the pipeline has ended, or while somebody waits for them."""

logger = logging.getLogger("frameledger.pipecat")

T = TypeVar("T")


class Outbox:
    """Publishes the captured `items` in order, each frame once."""

    def __init__(
        self,
        context_id: str,
        session: UUID,
        items: deque[Item],
        connect: Callable[[], Any],
        *,
        retell: Callable[[], None] = lambda: None,
    ) -> None:
        self._context_id = context_id
        self._items = items
        self._connect = connect
        self._retell = retell
        self.encoder = Encoder(session)
        self._pending = Pending(self.encoder.gap, lambda: self.encoder.history(time.time_ns()))
        self._sending: list[Waiting] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._client: Any = None
        self._main: asyncio.Task[None] | None = None
        self._resting: asyncio.Future[None] | None = None
        self._meanwhile: asyncio.TimerHandle | None = None
        self._is_released = threading.Event()
        self._hurried = False
        self._closing = False
        self._is_stopped = False
        self._delivery = Delivery[Waiting](
            context_id,
            logger,
            frame=lambda one: one.frame,
            refused=self._instead,
            waiting=lambda: (
                f"{self.unpublished} frames wait for {self.lag_seconds:.0f} s; the conversation continues"
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
                oldest = items[0][1]
        return oldest

    @property
    def lag_seconds(self) -> float:
        """The age of the oldest unpublished frame."""
        oldest = self.oldest_ns
        return 0.0 if oldest is None else max(0.0, (time.time_ns() - oldest) / 1e9)

    def start(self) -> None:
        """Start the thread. Does nothing if it is started."""
        if self._thread is not None:
            return
        self._client = self._connect()
        self._is_released = threading.Event()
        ready = threading.Event()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._run(ready)), name=f"frameledger {self._context_id}", daemon=True
        )
        self._thread.start()
        ready.wait()
        atexit.register(self._at_exit)

    def hurry(self) -> None:
        """Publish all captured frames at once, without waiting for the next tick."""
        self._hurried = True
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
        """Publish all waiting frames, for at most `within` seconds, and end the thread. Does nothing if it has
        ended or was stopped because the time had passed."""
        thread, loop = self._thread, self._loop
        if thread is None or loop is None or not thread.is_alive() or self._is_stopped:
            return
        self._closing = True
        self.hurry()
        atexit.unregister(self._at_exit)
        await asyncio.to_thread(thread.join, within)
        # Not twice, if two wait: the second would cancel the closing of the client.
        if thread.is_alive() and not self._is_stopped:
            self._is_stopped = True
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._stop)

    def release(self) -> None:
        """End the thread, which closes its client by itself. Nothing is published; `start` makes both again."""
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
                await self._pass_on()
        except asyncio.CancelledError:
            pass
        finally:
            # From here on only its client is used.
            is_released.set()
            with suppress(Exception):
                await asyncio.wait_for(client.close(), CLOSE_SECONDS)

    async def _pass_on(self) -> None:
        """Encode and publish some items, and rest until there may be others."""
        was_crowded = self._encode()
        if self._pending:
            await self._publish()
        if self._is_in_no_hurry:
            await self._rest(self._pause(was_crowded))
            return
        if self._items or self._pending:
            return
        self._hurried = False
        # An item that came before that, and whoever hurries for it, is seen here.
        if not self._items and not self._closing:
            await self._rest(TICK_SECONDS)

    def _pause(self, was_crowded: bool) -> float:
        if was_crowded and not self._pending:
            return CROWDED_SECONDS
        return LET_GO_SECONDS if self._items or self._pending else TICK_SECONDS

    async def _rest(self, seconds: float) -> None:
        """Sleep for this time, or until somebody hurries."""
        loop = asyncio.get_running_loop()
        self._resting = loop.create_future()
        timer = loop.call_later(seconds, self._wake)
        try:
            await self._resting
        finally:
            timer.cancel()

    def _wake(self) -> None:
        if self._resting is not None and not self._resting.done():
            self._resting.set_result(None)

    @property
    def _is_in_no_hurry(self) -> bool:
        return not self._closing and not self._hurried

    def _stop(self) -> None:
        if self._main is not None:
            self._main.cancel()

    def _at_exit(self) -> None:
        """Called if the program exits without ending the pipeline."""
        self._closing = True
        if self._thread is not None:
            self._thread.join(AT_EXIT_SECONDS)

    def _encode(self) -> bool:
        """Encode the oldest items, or all of them if somebody waits for them. Returns whether more waited than are
        encoded at once; then tokens share frames."""
        items = self._items
        left = AT_ONCE if self._is_in_no_hurry else len(items)
        is_crowded = len(items) > AT_ONCE
        while items and left:
            left -= 1
            try:
                item = take_joined(items) if is_crowded else items.popleft()
                self._pending.add(self.encoder.encode(item))
            except Exception:
                # If it was a change of messages, later changes no longer fit: all messages are published again.
                self.failures += 1
                self._retell()
                if self.failures == 1:
                    logger.exception("a captured frame of %s could not be encoded", self._context_id)
        return is_crowded

    def _instead(self, rejected: Waiting, error: FramesRefusedError) -> Waiting | None:
        """Returns the frame that replaces one that the broker rejects, with its size and hash."""
        logger.error("%s: the broker rejects a %s: %s", self._context_id, rejected.kind, error)
        return None if rejected.kind == "pipecat/RefusedFrame" else self.encoder.instead(rejected, str(error))

    async def _publish(self) -> None:
        """Publish the oldest frames. Items are encoded meanwhile if it takes longer than a tick: what waits while the
        broker is away is bounded once it is encoded."""
        self._sending = self._pending.take(AT_ONCE if self._is_in_no_hurry else AT_THE_END)
        self._meanwhile = asyncio.get_running_loop().call_later(TICK_SECONDS, self._encode_meanwhile)
        try:
            await self._delivery.publish(self._client, self._sending)
        finally:
            self._meanwhile.cancel()
        self._sending = []

    def _encode_meanwhile(self) -> None:
        self._encode()
        pause = LET_GO_SECONDS if self._items else TICK_SECONDS
        self._meanwhile = asyncio.get_running_loop().call_later(pause, self._encode_meanwhile)
