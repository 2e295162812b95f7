"""What the road is measured with: conversations of every kind of frame, interleaved, each frame of one size."""

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
    """The frames of one conversation without end, all of them applied, each of `size` bytes or as few more as it
    needs. Their ids are uuids that follow from the seed."""
    random = Random(f"{seed} {context_id}")
    for frame in talking(Folding(Conversation.new(ContextId(context_id)))):
        yield _of_size(frame, size, random)


def interleaved(contexts: int, each: int, size: int, seed: int = 0) -> Iterator[tuple[str, AnyFrame]]:
    """So many conversations with so many frames each, a frame of each in turn."""
    talks = {name: conversation(name, size, seed) for name in context_ids(contexts, seed)}
    for _ in range(each):
        for name, talk in talks.items():
            yield name, next(talk)


def mixture(count: int, size: int) -> list[tuple[str, AnyFrame]]:
    """So many frames, of a hundred conversations in turn."""
    return list(islice(interleaved(100, -(-count // 100), size), count))


def one_after_another(contexts: int, each: int, size: int, seed: int = 0) -> Iterator[tuple[str, AnyFrame]]:
    """The same, a conversation at a time."""
    for name in context_ids(contexts, seed):
        for frame in islice(conversation(name, size, seed), each):
            yield name, frame


def context_ids(count: int, seed: int = 0) -> list[str]:
    """Names as long and as random as those of most people."""
    random = Random(seed)
    return [str(_uuid(random)) for _ in range(count)]


def record_of(context_id: str, frame: AnyFrame) -> Outgoing:
    """The record that the client would publish for it."""
    return outgoing(frame, ContextId(context_id), source=SOURCE)


def _of_size(frame: AnyFrame, size: int, random: Random) -> AnyFrame:
    named = frame.model_copy(
        update={"id": str(_uuid(random)), "produced_at": _PRODUCED_AT, "metadata": {"note": ""}}
    )
    missing = size - len(encode_frame(named))
    # Noise, as text: what is the same in every frame would be compressed away.
    noise = random.randbytes((max(missing, 0) + 1) // 2).hex()[: max(missing, 0)]
    return named.model_copy(update={"metadata": {"note": noise}})


def _uuid(random: Random) -> UUID:
    return UUID(int=random.getrandbits(128), version=4)
