"""Merging: the first piece is sent at once, later ones together and in order, and nobody waits."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.bounds import IN_PROCESS

from frameledger.frames import (
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    LLMThoughtEndFrame,
    LLMThoughtStartFrame,
    LLMThoughtTextFrame,
)
from frameledger_services.inference.merging import MAX_CHARACTERS, Merging

LONG = 60.0
"""Longer than a test: what is sent within it was not waited for."""


class Log:
    """Takes what is sent, when it is allowed to."""

    def __init__(self, *, slow=False):
        self.batches = []
        self._came = asyncio.Condition()
        self._may_go_on = asyncio.Event()
        if not slow:
            self._may_go_on.set()

    async def send(self, frames):
        self.batches.append(list(frames))
        async with self._came:
            self._came.notify_all()
        await self._may_go_on.wait()

    def go_on(self):
        self._may_go_on.set()

    async def until(self, how_many):
        async with self._came:
            await self._came.wait_for(lambda: len(self.batches) >= how_many)

    @property
    def frames(self):
        return [frame for batch in self.batches for frame in batch]


def run(test, *, merge_secs=LONG, slow=False):
    async def life():
        log = Log(slow=slow)
        merging = Merging(log.send, merge_secs=merge_secs)
        async with asyncio.timeout(IN_PROCESS), asyncio.TaskGroup() as tasks:
            running = tasks.create_task(merging.run())
            await test(merging, log)
            log.go_on()
            merging.end()
            await running
        return log

    return asyncio.run(life())


def pieces(*texts):
    return [LLMTextFrame(text=text) for text in texts]


def said(frames):
    return "".join(frame.text for frame in frames if isinstance(frame, LLMTextFrame))


def test_the_first_piece_is_sent_at_once_and_later_ones_together():
    async def test(merging, log):
        merging.add(LLMFullResponseStartFrame())
        await log.until(1)
        first, *later = pieces("Once", " upon", " a", " time")
        merging.add(first)
        await log.until(2)
        for piece in later:
            merging.add(piece)

    log = run(test)
    assert [[getattr(frame, "text", frame.type) for frame in batch] for batch in log.batches] == [
        ["LLMFullResponseStartFrame"],
        ["Once"],
        [" upon a time"],
    ]


def test_what_was_gathered_is_sent_when_its_time_has_come():
    async def test(merging, log):
        for number, piece in enumerate(pieces("a", "b", "c"), start=1):
            merging.add(piece)
            await log.until(number)

    assert [frame.text for frame in run(test, merge_secs=0.03).frames] == ["a", "b", "c"]


def test_pieces_are_gathered_for_as_long_as_was_said():
    async def test(merging, log):
        loop = asyncio.get_running_loop()
        # The second is waited for from when the first is sent, which the test may learn later.
        began = loop.time()
        merging.add(LLMTextFrame(text="a"))
        await log.until(1)
        merging.add(LLMTextFrame(text="b"))
        await log.until(2)
        assert loop.time() - began >= 0.04

    run(test, merge_secs=0.05)


def test_an_end_sends_all_that_was_gathered_before_it_at_once_and_in_order():
    async def test(merging, log):
        merging.add(LLMTextFrame(text="a"))
        await log.until(1)
        merging.add(LLMTextFrame(text="b"))
        merging.add(LLMFullResponseEndFrame(finish_reason="stop"))
        await log.until(2)

    log = run(test)
    assert [frame.type for frame in log.batches[1]] == ["LLMTextFrame", "LLMFullResponseEndFrame"]


def test_text_and_thoughts_keep_their_order_and_are_never_joined_to_each_other():
    frames = [
        LLMThoughtStartFrame(append_to_context=True, llm="x"),
        LLMThoughtTextFrame(text="hm"),
        LLMThoughtTextFrame(text="m"),
        LLMThoughtEndFrame(signature="s"),
        *pieces("A", "B"),
        LLMThoughtTextFrame(text="aside"),
        *pieces("C"),
    ]

    async def test(merging, log):
        for frame in frames:
            merging.add(frame)

    log = run(test)
    assert [(frame.type, getattr(frame, "text", None)) for frame in log.frames] == [
        ("LLMThoughtStartFrame", None),
        ("LLMThoughtTextFrame", "hmm"),
        ("LLMThoughtEndFrame", None),
        ("LLMTextFrame", "AB"),
        ("LLMThoughtTextFrame", "aside"),
        ("LLMTextFrame", "C"),
    ]


def test_the_first_piece_after_a_thought_is_sent_at_once():
    async def test(merging, log):
        merging.add(LLMThoughtStartFrame())
        merging.add(LLMThoughtTextFrame(text="hm"))
        await log.until(1)
        merging.add(LLMThoughtEndFrame())
        await log.until(2)
        merging.add(LLMTextFrame(text="A"))
        await log.until(3)

    run(test)


def test_one_send_is_on_its_way_and_the_rest_gathers():
    async def test(merging, log):
        merging.add(LLMTextFrame(text="a"))
        await log.until(1)
        for piece in pieces("b", "c"):
            merging.add(piece)
        merging.add(LLMFullResponseEndFrame())
        # Whoever adds goes on although nothing was acknowledged.
        assert len(log.batches) == 1
        log.go_on()
        await log.until(2)

    log = run(test, slow=True)
    assert [len(batch) for batch in log.batches] == [1, 2]
    assert said(log.frames) == "abc"


def test_a_piece_that_says_more_than_its_text_keeps_its_frame():
    async def test(merging, log):
        merging.add(LLMTextFrame(text="a"))
        merging.add(LLMTextFrame(text="b", append_to_context=False))
        merging.add(LLMTextFrame(text="c"))

    assert [(frame.text, frame.append_to_context) for frame in run(test).frames] == [
        ("a", True),
        ("b", False),
        ("c", True),
    ]


def test_a_merged_frame_has_a_largest_size():
    text = "x" * (MAX_CHARACTERS // 2 + 1)

    async def test(merging, log):
        for _ in range(3):
            merging.add(LLMTextFrame(text=text))

    assert [len(frame.text) for frame in run(test).frames] == [len(text)] * 3


PIECE = st.sampled_from(["a", " b", "\ud83d", "\ude00", ""])
FRAMES = st.one_of(
    PIECE.map(lambda text: LLMTextFrame(text=text)),
    PIECE.map(lambda text: LLMThoughtTextFrame(text=text)),
    PIECE.map(lambda text: LLMTextFrame(text=text, append_to_context=False)),
    st.just(LLMThoughtStartFrame()),
    st.just(LLMThoughtEndFrame()),
)


@given(st.lists(st.tuples(FRAMES, st.booleans())), st.booleans())
def test_whatever_comes_and_whenever_nothing_is_lost_doubled_or_out_of_order(frames, slow):
    """`turn` lets the sending have its turn before the next frame is added."""

    async def test(merging, log):
        for frame, turn in frames:
            merging.add(frame)
            if turn:
                had = asyncio.Event()
                asyncio.get_running_loop().call_soon(had.set)
                await had.wait()

    log = run(test, slow=slow, merge_secs=0.0)
    assert joined(log.frames) == joined(frame for frame, _ in frames)


def joined(frames):
    """The frames with neighbours of plain text as one: as merged as they can be."""
    merged: list[list[Any]] = []
    for frame in frames:
        plain = frame.model_fields_set <= {"type", "text"} and hasattr(frame, "text")
        if plain and merged and merged[-1][0] == (frame.type, plain):
            merged[-1][1] += frame.text
        else:
            merged.append([(frame.type, plain), getattr(frame, "text", None)])
    return merged


def test_a_send_that_fails_ends_the_sending_with_its_error():
    async def life():
        async def refuse(frames):
            raise OSError("away")

        merging = Merging(refuse, merge_secs=LONG)
        merging.add(LLMTextFrame(text="a"))
        async with asyncio.timeout(IN_PROCESS):
            await merging.run()

    with pytest.raises(OSError, match="away"):
        asyncio.run(life())
