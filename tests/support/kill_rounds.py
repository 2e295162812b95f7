"""Kills a projector at one point after another; each successor finishes its work."""

from __future__ import annotations

import itertools
import signal
from collections.abc import Iterable, Iterator

from tests.support.killable import SINGLE_STATEMENT, Plan, projector
from tests.support.pipeline import FEW, Pipeline, Raw, mixed

from frameledger import derived
from frameledger.frames import LLMContextEraseFrame, LLMMessagesAppendFrame, LLMTextFrame, encode_frame
from frameledger.ids import ContextId, Version

ONCE = ("SELECT projections", "SELECT frames.context_id, contexts", "SELECT topic, outbox")
"""Points that a burst may or may not reach: a projector reaches them once after it took over a partition, when it loads
a head whose stored state is behind, or when the broker is slow to accept outbox rows. All of them only read."""


NAMED = {"member": "it", "session_ms": 30_000}
"""Each process gets the partitions of its predecessor at once, and keeps them on a busy machine. Until it has caught
up, it publishes no cancellations for stored frames."""


def points_of(pipeline: Pipeline, small: int | None, bursts: Iterator[list[Raw]]) -> list[str]:
    """Returns the points that a surviving process reaches in such a burst, each once."""
    with projector(pipeline.settings, Plan(tell=True, small=small, **NAMED)) as running:
        pipeline.publish(next(bursts))
        pipeline.until_owned_by(running)
        pipeline.until_idle(running)
        running.arm()
        pipeline.publish(next(bursts))
        pipeline.until_idle(running)
        points = [point for point in running.points() if not point.startswith(ONCE)]
        assert running.stop() == 0
    if small == SINGLE_STATEMENT and "UPDATE projections" in points:
        points.remove("UPDATE projections")  # once too: there no batch says so
    return points


def kill_at_each(
    pipeline: Pipeline, small: int | None, points: Iterable[str], bursts: Iterator[list[Raw]]
) -> None:
    """Run a process for each point. It first finishes the work of its predecessor, and then dies at that point in its
    own burst."""
    for point in points:
        with projector(pipeline.settings, Plan(point=point, small=small, **NAMED)) as running:
            # If its predecessor left no work, idleness does not show that it has started.
            pipeline.until_owned_by(running)
            pipeline.until_idle(running)
            running.arm()
            pipeline.publish(next(bursts))
            assert running.ended(point) == -signal.SIGKILL, point


def halves() -> Iterator[list[Raw]]:
    """Yields bursts that begin conversations and end those of the previous burst, so that rows are created and
    changed."""
    left: list[Raw] = []
    for number in itertools.count(1):
        records = mixed(str(number), FEW)
        middle = len(records) // 2
        yield left + records[:middle]
        left = records[middle:]


def erasures() -> Iterator[list[Raw]]:
    """Yields bursts that erase the conversations of the previous burst, send them late text, begin most of them again,
    and erase a conversation named `short-...` completely. The first burst only begins conversations."""
    yield _begun(0)
    for number in itertools.count():
        yield [*_erased(number), *_begun(number + 1)]


def _said(text: str) -> bytes:
    return encode_frame(LLMMessagesAppendFrame(messages=[{"role": "user", "content": text}], run_llm=True))


def _begun(number: int) -> list[Raw]:
    return [Raw(f"talk-{number}-{part}".encode(), _said("a secret")) for part in range(3)]


def _erased(number: int) -> Iterator[Raw]:
    for part in range(3):
        context_id = f"talk-{number}-{part}"
        key, run = context_id.encode(), derived.run_id(ContextId(context_id), Version(1))
        yield Raw(key, encode_frame(LLMContextEraseFrame(id="e", why="asked")))
        yield Raw(key, encode_frame(LLMTextFrame(run_id=run, text="a secret")))
        yield Raw(key, encode_frame(LLMContextEraseFrame(id="e", why="asked")))
        if part:
            yield Raw(key, _said("fine"))
    short = f"short-{number}".encode()
    yield Raw(short, _said("a secret"))
    yield Raw(short, encode_frame(LLMContextEraseFrame(why="asked")))
