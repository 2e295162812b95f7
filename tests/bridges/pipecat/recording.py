"""An in-memory broker for the bridge, and the check that its frames equal Pipecat's context at each sync point."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from itertools import chain
from typing import Any

from tests.bounds import IN_PROCESS
from tests.bridges.pipecat.bots import Bot

from frameledger.fold import Conversation, Folding
from frameledger_services.pipecat import FrameledgerObserver
from frameledger_services.pipecat.numbered_ids import OWN, UNNUMBERED, NumberedIds
from frameledger_services.pipecat.values import to_json

MAX_WITHOUT_A_FRAME = 1_000
"""Consecutive captured items without a frame."""


class Broker:
    """Keeps published frames."""

    def __init__(self) -> None:
        self.frames: list[Any] = []
        self.closed = False

    async def publish(self, context_id, *frames, within):
        self.frames += [one.frame for one in frames]

    async def close(self):
        self.closed = True


class Recording:
    """An observer with an in-memory broker, and the context at each of its sync points."""

    def __init__(self, context_id: str = "call-1", broker: Broker | None = None, **options: Any) -> None:
        self.broker = Broker() if broker is None else broker
        self.observer = FrameledgerObserver(context_id, connect=lambda: self.broker, **options)
        self.points: list[tuple[int, str]] = []
        capture = self.observer._capture
        append, compare = capture._append, capture.sync
        count = 0

        def appended(*captured):
            # Counted here: the thread may have taken the items when the comparison returns.
            nonlocal count
            sequence = append(*captured)
            count = count if sequence is None else sequence + 1
            return sequence

        def sync():
            compare()
            if capture.context is not None:
                self.points.append((count, as_bytes(capture.context.messages)))

        vars(capture).update(_append=appended, sync=sync)

    def run(self, bot: Bot, play: Callable[[Bot], Awaitable[object]]) -> Conversation:
        """Run a bot with this observer and compare all sync points with the fold."""
        asyncio.run(self._run(bot, play))
        return self.check()

    async def _run(self, bot: Bot, play: Callable[[Bot], Awaitable[object]]) -> None:
        bot.worker.add_observer(self.observer)
        async with asyncio.timeout(IN_PROCESS):
            await bot.run(play)
        assert self.observer.lost == {}
        self.points.append((1_000_000, as_bytes(bot.context.messages)))

    def check(self) -> Conversation:
        assert self.points
        folding = Folding(Conversation.new("call-1"))
        rest = self._in_sequence()
        sequence, one = next(rest, (0, None))
        for count, messages in self.points:
            while one is not None and sequence < count:
                step = folding.step(one)
                assert step is not None
                sequence, one = next(rest, (0, None))
            assert stored_bytes(folding.conversation().messages) == messages, (count, len(self.points))
        for left in [] if one is None else [one, *(later for _, later in rest)]:
            folding.step(left)
        return folding.conversation()

    def _in_sequence(self) -> Iterator[tuple[int, Any]]:
        """Yields the published frames with the number of their captured item, which their ids contain; a token that was
        captured without one has that of the item before it."""
        sequence, number = 0, -1
        unnumbered = iter(range(UNNUMBERED, OWN))
        without = self._id(next(unnumbered), 0)
        for frame in self.broker.frames:
            if frame.id == without:
                without = self._id(next(unnumbered), 0)
                yield sequence, frame
                continue
            here = (sequence, number + 1)
            behind = ((later, 0) for later in range(sequence + 1, sequence + MAX_WITHOUT_A_FRAME))
            sequence, number = next(one for one in chain([here], behind) if frame.id == self._id(*one))
            yield sequence, frame

    def _id(self, sequence: int, number: int) -> str:
        return NumberedIds(self.observer.session).of(sequence, number)

    def of(self, *types: str) -> list[Any]:
        return [one for one in self.broker.frames if one.type in types]


def as_bytes(messages: Any) -> str:
    """Returns Pipecat's messages as they should be stored."""
    return stored_bytes(to_json(list(messages)))


def stored_bytes(messages: Any) -> str:
    return json.dumps(list(messages), sort_keys=True, ensure_ascii=False, default=dict)
