"""The pace of a replay: the gaps between recorded frames, divided by a speed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

from frameledger_services.store.replays import RecordedFrame

MAX_CLOCK_DIFFERENCE = timedelta(seconds=5)
"""A publisher's time is used if it is this near to the broker's: tokens that were logged together have different times
there. A clock that is further away is wrong."""


def time_of(frame: RecordedFrame) -> datetime:
    """Returns when a frame was produced, by its publisher if that is plausible, else by the broker."""
    produced_at = frame.produced_at
    if produced_at is not None and abs(produced_at - frame.logged_at) <= MAX_CLOCK_DIFFERENCE:
        return produced_at
    return frame.logged_at


class ReplayPace:
    """Waits between frames as long as in the original, divided by `speed`; with 0 it never waits. A wait beyond
    `longest` seconds is shortened to that. The time of playing itself does not accumulate: a wait ends when its frame
    is due. `clock` counts seconds and `sleep` waits for some.
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
            # Clocks of several publishers.
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
        """Wait, if there is anything to wait for."""
        if seconds > 0:
            await self._sleep(seconds)
