"""The delivery of the bridges: batches are retried until the broker has them, each frame counts once, and a rejected
frame blocks no other."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

import pytest

from frameledger_services.client import (
    BrokerError,
    EncodedFrame,
    FramesRefusedError,
    FramesUnacknowledgedError,
)
from frameledger_services.client import delivery as module
from frameledger_services.client.delivery import Delivery

logger = logging.getLogger("frameledger.test")


def frame(number: int) -> EncodedFrame:
    return EncodedFrame.of(b'{"type":"test/Frame","id":"%d","number":%d}' % (number, number))


class Log:
    """Keeps published frames, rejects frames with these numbers, and fails its first calls with `faults`: with the
    error itself, or with one that reports which half of the batch arrived."""

    def __init__(self, *faults: Any, refuses: tuple[int, ...] = ()) -> None:
        self.faults, self.refuses = list(faults), refuses
        self.taken: list[int] = []
        self.calls = 0

    async def publish(self, context_id: str, *frames: EncodedFrame, within: float) -> None:
        self.calls += 1
        numbers = [int(one.frame.id or "") for one in frames]
        fault = self.faults.pop(0) if self.faults else None
        if fault == "half":
            half = len(frames) // 2
            self.taken += numbers[:half]
            raise FramesUnacknowledgedError("in time", [one.frame for one in frames[half:]])
        if fault is not None:
            raise fault
        for place, number in enumerate(numbers):
            if number in self.refuses:
                raise FramesRefusedError("too large", [one.frame for one in frames[place:]])
            self.taken.append(number)


def delivery(instead: Any = None, **options: Any) -> Delivery[EncodedFrame]:
    return Delivery(
        "call-7",
        logger,
        frame=lambda one: one,
        refused=instead or (lambda one, error: None),
        waiting=lambda: "3 frames wait",
        **options,
    )


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch):
    monkeypatch.setattr(module, "PAUSE_SECONDS", 0)


@pytest.mark.parametrize(
    "faults",
    [(), ("half",), ("half", "half", "half"), (BrokerError("away"), ValueError("odd"), "half", OSError())],
    ids=["all is well", "half arrived", "again and again", "anything"],
)
def test_a_batch_is_sent_until_all_of_it_has_arrived(faults):
    log, sent = Log(*faults), delivery()
    asyncio.run(sent.publish(log, [frame(number) for number in range(8)]))
    assert log.taken == list(range(8))
    assert log.calls == len(faults) + 1
    assert (sent.refused, sent.why) == (0, None)


@pytest.mark.parametrize("refuses", [(0,), (3,), (7,), (2, 3, 6)])
def test_a_refused_frame_holds_up_no_other(refuses):
    log, sent = Log("half", refuses=refuses), delivery()
    asyncio.run(sent.publish(log, [frame(number) for number in range(8)]))
    # Frames that had arrived before the rejection are sent once.
    refused = [one for one in refuses if one not in log.taken]
    assert log.taken == [number for number in range(8) if number not in refused]
    assert sent.refused == len(refused)


def test_in_the_place_of_a_refused_frame_another_is_told():
    def instead(one: EncodedFrame, error: Exception) -> EncodedFrame | None:
        assert str(error) == "too large"
        number = int(one.frame.id or "") + 100
        return frame(number) if number < 300 else None

    # Its first replacement is rejected, too.
    log, sent = Log(refuses=(1, 101, 201)), delivery(instead)
    asyncio.run(sent.publish(log, [frame(number) for number in range(3)]))
    assert log.taken == [0, 2]
    assert sent.refused == 3
    log = Log(refuses=(1,))
    asyncio.run(delivery(instead).publish(log, [frame(number) for number in range(3)]))
    assert log.taken == [0, 101, 2]


def test_who_cannot_go_on_is_told_and_has_the_reason():
    sent = delivery(gives_up=(RuntimeError,))
    with pytest.raises(RuntimeError, match="closed"):
        asyncio.run(sent.publish(Log(BrokerError("away"), RuntimeError("closed")), [frame(1)]))
    assert str(sent.why) == "closed"


def test_a_word_a_minute_says_what_waits_and_why(caplog, monkeypatch):
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    sent = delivery()
    asyncio.run(sent.publish(Log(BrokerError("away"), BrokerError("away")), [frame(1)]))
    said = "call-7: frames could not be published yet; 3 frames wait: away"
    assert [one.getMessage() for one in caplog.records] == [said]
    assert caplog.records[0].exc_info is None
    now += module.SAY_SECONDS
    sent.say("a frame was refused", None)
    assert len(caplog.records) == 1
    now += 1
    # Unexpected errors are logged with their traceback.
    sent.say("a frame was refused", ValueError("odd"))
    assert caplog.records[1].exc_info is not None
