"""The head of a conversation: what the projector keeps of it between two batches."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from uuid import UUID

from frameledger import stored
from frameledger.evolve.state import RequestParameters, State
from frameledger.ids import ContextId

REMEMBERED_IDS = 256
"""How many of its newest frame ids a head remembers, so that an ordinary retry asks the database nothing."""

BYTES_IN_MEMORY = 6
"""Bytes in memory for a byte of JSON. It is 5.4 for tools, which are objects of objects of short texts, and 1 for one
long text."""


@dataclass(slots=True)
class Counters:
    """What `contexts` counts, so that nobody has to."""

    messages: int = 0
    runs: int = 0
    calls: int = 0
    open_calls: int = 0
    interruptions: int = 0
    unknown: int = 0
    duplicates: int = 0


@dataclass(slots=True)
class Head:
    """One conversation, as of its newest frame. Belongs to one batch at a time, which changes it in place; a batch
    that fails throws the heads it touched away, since they may be ahead of the database."""

    context_id: ContextId
    state: State
    chain: bytes
    version: int = 0
    started_at: datetime | None = None
    last_at: datetime | None = None
    counters: Counters = field(default_factory=Counters)
    run_version: int = 0
    parked_version: int | None = None
    parked_at: datetime | None = None
    """When it was parked, if that happened since the head was loaded."""

    parked_error: str | None = None
    stored: bool = False
    """Whether `contexts` has a row of it already."""

    saved_version: int | None = None
    """The version that the stored state is of; the frames after it are folded again when the head is loaded. None has
    it stored with the next batch."""

    state_bytes: int = 0
    """How long the stored form of the state was when it was made or read last."""

    saved_text: int = 0
    """How long the open texts were when the state was stored last."""

    texted_attempt: tuple[str, int] | None = None
    """The run and attempt of which the first text was seen."""

    terms_bytes: int = 0
    """How long the stored form of `weighed_terms` is."""

    weighed_terms: RequestParameters | None = None

    recent: OrderedDict[UUID, int] = field(default_factory=OrderedDict)
    """The newest frame ids with Python's hash of their values, which is another one in the next process."""

    @classmethod
    def new(cls, context_id: ContextId) -> Head:
        """A conversation of which nothing is stored: version 0, and the first link of its chain."""
        return cls(context_id, State(context_id), sha256(context_id.encode()).digest())

    def park(self, error: str, now: datetime) -> None:
        """From the next frame on, frames are stored and not folded."""
        self.parked_version = self.version + 1
        self.parked_error = error
        self.parked_at = now

    def remember(self, frame_id: UUID, value_hash: int) -> None:
        self.recent[frame_id] = value_hash
        if len(self.recent) > REMEMBERED_IDS:
            self.recent.popitem(last=False)

    def weight(self) -> int:
        """About how many bytes it takes in memory, rather more than less. Its costs do not follow the frames: what is
        long in a state is measured when it changes, and when the state is stored."""
        terms = self.state.terms
        if terms is not self.weighed_terms:
            self.weighed_terms = terms
            self.terms_bytes = len(stored.dump(State(self.context_id, terms=terms)))
        known = self.state.calls
        calls = len(known.open) + len(known.barred) + len(known.ambiguous)
        state = BYTES_IN_MEMORY * max(self.state_bytes, self.terms_bytes)
        return 2_000 + 300 * calls + 200 * len(self.recent) + 4 * open_text(self.state) + state


def open_text(state: State) -> int:
    """How many characters of text are open: what the stored form of a state grows by."""
    texts = [
        state.turn.words if state.turn is not None else None,
        state.speech.response.text if state.speech.response is not None else None,
        state.speech.thought.text if state.speech.thought is not None else None,
    ]
    return sum(text.length for text in texts if text is not None)


def chained(chain: bytes, version: int, source: str | None, value: bytes) -> bytes:
    """The next link: a frame's version, source and bytes on top of the link before."""
    name = b"" if source is None else source.encode("utf-8", "replace")
    length = -1 if source is None else len(name)
    return sha256(
        b"".join((chain, version.to_bytes(8, "big"), length.to_bytes(4, "big", signed=True), name, value))
    ).digest()
