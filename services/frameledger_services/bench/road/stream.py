"""The input of the bench: conversations with every kind of frame, interleaved, with frames of equal size."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from random import Random
from uuid import UUID

from frameledger.fold import Conversation, Folding
from frameledger.frames import AnyFrame, encode_frame
from frameledger.ids import ContextId
from frameledger.record import Outgoing, outgoing
from frameledger_services.bench.talk import talking

SOURCE = "frameledger/bench"

_PRODUCED_AT = "2026-03-04T09:00:00.000Z"


def conversation(context_id: str, size: int, seed: int = 0) -> Iterator[AnyFrame]:
    """Yields the frames of one conversation without end, all of them applied, each of `size` bytes or as few more as it
    needs. Their ids are UUIDs derived from the seed."""
    random = Random(f"{seed} {context_id}")
    for frame in talking(Folding(Conversation.new(ContextId(context_id)))):
        yield _of_size(frame, size, random)


def interleaved(contexts: int, each: int, size: int, seed: int = 0) -> Iterator[tuple[str, AnyFrame]]:
    """Yields the frames of this many conversations with this many frames each, one frame of each in turn."""
    talks = {name: conversation(name, size, seed) for name in context_ids(contexts, seed)}
    for _ in range(each):
        for name, talk in talks.items():
            yield name, next(talk)


def mixture(count: int, size: int) -> list[tuple[str, AnyFrame]]:
    """Yields this many frames, of a hundred conversations in turn."""
    return list(islice(interleaved(100, -(-count // 100), size), count))


def one_after_another(contexts: int, each: int, size: int) -> Iterator[tuple[str, AnyFrame]]:
    """Yields the same frames, one conversation after another."""
    for name in context_ids(contexts):
        for frame in islice(conversation(name, size), each):
            yield name, frame


def context_ids(count: int, seed: int = 0) -> list[str]:
    """Returns ids as long and as random as typical ones."""
    random = Random(seed)
    return [str(_uuid(random)) for _ in range(count)]


def record_of(context_id: str, frame: AnyFrame) -> Outgoing:
    """Returns the record that the client would publish for this frame."""
    return outgoing(frame, ContextId(context_id), source=SOURCE)


def _of_size(frame: AnyFrame, size: int, random: Random) -> AnyFrame:
    named = frame.model_copy(
        update={"id": str(_uuid(random)), "produced_at": _PRODUCED_AT, "metadata": {"note": ""}}
    )
    missing = size - len(encode_frame(named))
    # Random text: equal parts of frames would be compressed away.
    noise = random.randbytes((max(missing, 0) + 1) // 2).hex()[: max(missing, 0)]
    return named.model_copy(update={"metadata": {"note": noise}})


def _uuid(random: Random) -> UUID:
    return UUID(int=random.getrandbits(128), version=4)
