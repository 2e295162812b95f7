"""The clock of an event loop, which only the test moves."""

import asyncio


class LoopClock:
    """Replaces the clock of the running event loop. It advances only when `seconds` is increased."""

    def __init__(self) -> None:
        self.seconds = 0.0
        loop = asyncio.get_running_loop()
        began = loop.time()
        vars(loop)["time"] = lambda: began + self.seconds
