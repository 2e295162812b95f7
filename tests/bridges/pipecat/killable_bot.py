"""A bot in its own process that kills itself after a given number of captured items."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipecat.frames.frames import FunctionCallResultProperties
from tests.bounds import ON_SERVERS
from tests.bridges.pipecat.bots import NOTHING_TELLS, Answer, Bot
from tests.support.processes import preload

from frameledger_services.pipecat import FrameledgerObserver
from frameledger_services.pipecat.captured_items import CapturedItems
from frameledger_services.settings import Settings

preload(__name__)

ANSWERS = [
    Answer(["The train", " leaves at nine,"], [("order", "call-1", {"what": "tea"})]),
    Answer(["Tea is on its way."]),
    Answer(["One two", " three four", " five six"]),
    Answer(["I look."], [("search", "call-2", {})]),
    Answer(["It takes a moment."]),
    Answer(["Found it."]),
]


class Items(CapturedItems):
    """Captured items."""

    then: Callable[[Any], None] | None = None
    """What is to be done with each once it is there."""

    def append(self, item: Any) -> None:
        super().append(item)
        if self.then is not None:
            self.then(item[3] if type(item) is tuple else item)


def run(
    settings: Settings, context_id: str, dies_at: int | None, flushed: bool, book: str, said: Any
) -> None:
    """Play the script and die at the item of this number; with `flushed`, after all earlier items are published. Prints
    the number of items or, before it dies, the spoken and transcribed words and the calls."""
    asyncio.run(_run(settings, context_id, dies_at, flushed, Path(book), said))


async def _run(
    settings: Settings, context_id: str, dies_at: int | None, flushed: bool, book: Path, said: Any
) -> None:
    ledger = FrameledgerObserver(context_id, settings)
    outbox = ledger._outbox
    items = ledger._capture.items = outbox._items = Items()
    context = await ledger.restore(within=ON_SERVERS)
    bot = Bot(ANSWERS, True, context, [ledger])
    words: list[str] = []
    asked: list[str] = []
    count = 0

    def appended(captured):
        nonlocal count
        count += 1
        kind = type(captured).__name__
        if kind == "TTSTextFrame":
            words.append(captured.text)
        elif kind == "TranscriptionFrame":
            asked.append(captured.text)
        if count == dies_at:
            while flushed and outbox.unpublished:
                NOTHING_TELLS.wait(0.001)
            said.send((words, asked))
            os.kill(os.getpid(), signal.SIGKILL)

    items.then = appended

    async def order(params):
        with book.open("a") as lines:
            lines.write(f"{params.tool_call_id}\n")
        await params.result_callback({"ordered": params.arguments["what"]})

    async def search(params):
        await params.result_callback({"part": 1}, properties=FunctionCallResultProperties(is_final=False))
        await params.result_callback({"found": True})

    bot.model.register_function("order", order)
    bot.model.register_function("search", search, cancel_on_interruption=False)

    async def play(bot):
        await bot.say("When does it leave?", "And tea, please.")
        await bot.model.until_answered(2)
        await bot.settle()
        bot.speaker.stops_after = bot.speaker.spoken + 3
        bot.speaker.stopped.clear()
        await bot.say("Count.")
        await bot.speaker.stopped.wait()
        await bot.until_heard(3)
        await bot.interrupt()
        await bot.say("Search.")
        await bot.model.until_answered(5)
        await bot.settle()

    await bot.run(play)
    said.send(count)
