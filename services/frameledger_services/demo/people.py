"""The participants of the demo's conversation: the recorded passenger and client, the voice that speaks the answers,
the purser, who confirms a seat, the kitchen, which knows its orders, and the accident. Each is a task that waits for
the event to which it responds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol
from uuid import UUID

from frameledger.evolve.state import Call
from frameledger.frames import (
    AnyFrame,
    BotStartedSpeakingFrame,
    BotStoppedSpeakingFrame,
    FunctionCallResultFrame,
)
from frameledger_services.demo import recording
from frameledger_services.demo.harbour import BOOKING, Harbour
from frameledger_services.demo.recording import Line, Stage
from frameledger_services.demo.talk import Talk


class Publish(Protocol):
    """Publishes a frame of a source, with a note to print and the id of the frame that caused it, if any. Returns when
    the frame is on the log."""

    async def __call__(
        self, frame: AnyFrame, source: str, note: str, *, causation_id: UUID | None = None
    ) -> None: ...


WORD_SECONDS = 0.09
"""Seconds that the voice takes for a word."""

LOOK_UP_SECONDS = 1.0
"""Seconds that the purser and the kitchen take."""

POLL_SECONDS = 0.05

VOICE = "frameledger/demo/voice"
PURSER = "frameledger/demo/purser"
KITCHEN = "frameledger/demo/kitchen"


async def follow_the_recording(
    talk: Talk, lines: Sequence[Line], stage: Stage, publish: Publish, *, speed: float
) -> int:
    """Publish the recorded lines, each when its condition is met. Returns the number of lines left out."""
    left_out, happened = 0, True
    for line in lines:
        await talk.until(f"{line.frame['type']} has its turn", partial(talk.ready, line.when))
        if line.when != recording.NOTHING:
            happened = talk.met(line.when)
        if line.only and not happened:
            left_out += 1
            continue
        await asyncio.sleep(line.after / speed)
        frame = recording.frame_of(line, stage, talk)
        if frame is None:
            left_out += 1
        else:
            await publish(frame, line.source, line.note)
    return left_out


async def speak(talk: Talk, publish: Publish, *, speed: float) -> None:
    """Speak each answer, until it ends or is interrupted. Runs until cancelled."""
    while True:
        await talk.until("somebody says something", lambda: talk.spoken < talk.utterances, within=None)
        await publish(BotStartedSpeakingFrame(), VOICE, "", causation_id=talk.answer)
        # The answer may end before the start of the speech is stored.
        await talk.until("it is seen that the voice speaks", lambda: talk.up_to_date)
        await talk.until("the answer is over", lambda: not talk.answering)
        # Another attempt may have repeated the answer meanwhile: that is the same speech.
        speaking = talk.utterances
        # For as long as the words take, unless the user interrupts.
        await talk.happens(lambda: talk.cut_in or talk.ended, within=talk.word_count * WORD_SECONDS / speed)
        if talk.bot_speaks:
            await publish(BotStoppedSpeakingFrame(), VOICE, "", causation_id=talk.answer)
        talk.spoken = speaking
        await talk.changed()


async def confirm(talk: Talk, publish: Publish, *, speed: float) -> None:
    """Answer each call that waits for a person, like `frameledger calls answer`. Runs until cancelled."""
    answered: set[tuple[int, int]] = set()

    def unanswered() -> list[Call]:
        return [one for one in talk.waiting() if (one.requested_version, one.ordinal) not in answered]

    while True:
        await talk.until("a call waits for a person", lambda: bool(unanswered()), within=None)
        await asyncio.sleep(LOOK_UP_SECONDS / speed)
        for call in unanswered():
            answered.add((call.requested_version, call.ordinal))
            result = FunctionCallResultFrame(
                function_name=call.function_name,
                tool_call_id=call.tool_call_id,
                result={"seat": "by the window", "deck": "upper"},
                opened_version=call.requested_version,
            )
            note = "The purser answers the call that waited for him."
            await publish(result, PURSER, note, causation_id=talk.start_of(call))


async def find_out(talk: Talk, harbour: Harbour, publish: Publish, *, speed: float) -> None:
    """Resolve each ambiguous call during silence, like `frameledger calls resolve`. Runs until cancelled."""
    while True:
        await talk.until("a call is ambiguous", lambda: talk.silent and bool(talk.unknown()), within=None)
        await asyncio.sleep(LOOK_UP_SECONDS / speed)
        for lost, frame_id in talk.unknown():
            result = FunctionCallResultFrame(
                function_name=lost.function_name,
                tool_call_id=lost.tool_call_id,
                result={"orders_in_the_book": len(harbour.bookings([lost.tool_call_id]))},
                settled_as="resolved",
            )
            note = "The kitchen checks its order book and reports the result."
            await publish(result, KITCHEN, note, causation_id=frame_id)


async def have_an_accident(talk: Talk, harbour: Harbour, kill: Callable[[], None]) -> None:
    """Kill the worker once, during a call of `BOOKING` that has written its order and has not ended."""
    await talk.until(f"{BOOKING} runs", lambda: talk.alone(BOOKING) is not None, within=None)
    call = talk.alone(BOOKING)
    assert call is not None
    while not harbour.bookings([call]):
        await asyncio.sleep(POLL_SECONDS)
    kill()
