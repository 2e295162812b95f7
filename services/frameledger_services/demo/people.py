"""Who takes part in the demo's conversation: the passenger and the client as they are recorded, the voice that speaks
the answers, the purser, who confirms a seat, and the kitchen, which knows its orders; and an accident. Each is a task
that waits for what it answers to.
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
    """Publishes a frame, for a source, with a note that is printed and the frame that caused it, if one did. Returns
    when it is on the log."""

    async def __call__(
        self, frame: AnyFrame, source: str, note: str, *, causation_id: UUID | None = None
    ) -> None: ...


WORD_SECONDS = 0.09
"""How long the voice takes for a word. It is in a hurry."""

LOOK_UP_SECONDS = 1.0
"""How long the purser and the kitchen take."""

LOOK_AGAIN_SECONDS = 0.05

VOICE = "frameledger/demo/voice"
PURSER = "frameledger/demo/purser"
KITCHEN = "frameledger/demo/kitchen"


async def follow_the_recording(
    talk: Talk, lines: Sequence[Line], stage: Stage, publish: Publish, *, speed: float
) -> int:
    """Publish what is recorded, each line in its turn. Returns how many lines were left out."""
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
    """Speak each answer, for as long as that takes or until it is cut short; until cancelled."""
    while True:
        await talk.until("somebody says something", lambda: talk.spoken < talk.utterances, within=None)
        await publish(BotStartedSpeakingFrame(), VOICE, "", causation_id=talk.answer)
        # The answer may be over before it is seen that we speak.
        await talk.until("it is seen that the voice speaks", lambda: talk.up_to_date)
        await talk.until("the answer is over", lambda: not talk.answering)
        # Another attempt may have begun to say it anew meanwhile: that was the same speech.
        speaking = talk.utterances
        # As long as it takes to say it, unless the user cuts in.
        await talk.happens(lambda: talk.cut_in or talk.ended, within=talk.said * WORD_SECONDS / speed)
        if talk.bot_speaks:
            await publish(BotStoppedSpeakingFrame(), VOICE, "", causation_id=talk.answer)
        talk.spoken = speaking
        await talk.changed()


async def confirm(talk: Talk, publish: Publish, *, speed: float) -> None:
    """Answer whatever waits for a person, as `frameledger calls answer` does; until cancelled."""
    answered: set[tuple[int, int]] = set()

    def asked() -> list[Call]:
        return [one for one in talk.waiting() if (one.requested_version, one.ordinal) not in answered]

    while True:
        await talk.until("a call waits for a person", lambda: bool(asked()), within=None)
        await asyncio.sleep(LOOK_UP_SECONDS / speed)
        for call in asked():
            answered.add((call.requested_version, call.ordinal))
            result = FunctionCallResultFrame(
                function_name=call.function_name,
                tool_call_id=call.tool_call_id,
                result={"seat": "by the window", "deck": "upper"},
                opened_version=call.requested_version,
            )
            note = "The purser confirms what waited for him."
            await publish(result, PURSER, note, causation_id=talk.start_of(call))


async def find_out(talk: Talk, harbour: Harbour, publish: Publish, *, speed: float) -> None:
    """Resolve each ambiguous call, as `frameledger calls resolve` does, once no speech goes on; until cancelled."""
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
            note = "The kitchen looks into its book, and says what happened."
            await publish(result, KITCHEN, note, causation_id=frame_id)


async def have_an_accident(talk: Talk, harbour: Harbour, kill: Callable[[], None]) -> None:
    """Kill the worker, once, in the middle of a call of `BOOKING`: it has written its order, and is not over."""
    await talk.until(f"{BOOKING} runs", lambda: talk.alone(BOOKING) is not None, within=None)
    call = talk.alone(BOOKING)
    assert call is not None
    while not harbour.bookings([call]):
        await asyncio.sleep(LOOK_AGAIN_SECONDS)
    kill()
