"""The pace of a replay: the gaps between recorded frames, divided by a speed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

from frameledger_services.store.replays import RecordedFrame

MAX_CLOCK_DIFFERENCE = timedelta(seconds=5)
"""Maximum difference between a publisher's time and the broker's. A nearer time is used, because tokens that were
logged together have different times there. With a larger difference the publisher's clock is wrong."""


def time_of(frame: RecordedFrame) -> datetime:
    """Returns the time of a frame: that of its publisher if it is plausible, else that of the broker."""
    produced_at = frame.produced_at
    if produced_at is not None and abs(produced_at - frame.logged_at) <= MAX_CLOCK_DIFFERENCE:
        return produced_at
    return frame.logged_at


class ReplayPace:
    """Waits between frames as long as in the original, divided by `speed`; with 0 it never waits. Waits of more than
    `longest` seconds are shortened. The time between calls does not accumulate: a wait ends when its frame is due.
    `clock` returns seconds, and `sleep` waits for some.
    """

    def __init__(
        self,
        speed: float,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[object]],
        longest: float | None = None,
    ) -> None:
        self._speed = speed
        self._clock = clock
        self._sleep = sleep
        self._longest = longest
        self._before: datetime | None = None
        self._due: float | None = None

    def wait_for(self, time: datetime) -> tuple[float, float]:
        """Returns the seconds until the frame of this time is due, and the length of the silence before it if that was
        shortened, else 0. Call it once for each frame, in order."""
        before = self._before
        if before is not None and time <= before:
            # The clocks of several publishers differ.
            time = before
        self._before = time
        if self._speed == 0 or before is None or self._due is None:
            self._due = self._clock()
            return 0.0, 0.0
        silence = (time - before).total_seconds()
        wait, shortened = silence / self._speed, 0.0
        if self._longest is not None and wait > self._longest:
            wait, shortened = self._longest, silence
        self._due += wait
        return max(0.0, self._due - self._clock()), shortened

    async def wait(self, seconds: float) -> None:
        """Wait for this time, if it is not 0."""
        if seconds > 0:
            await self._sleep(seconds)
