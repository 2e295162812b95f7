"""The head of a conversation: its current state and counters, as the projector caches them between batches."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from frameledger import stored
from frameledger.chain import first_link
from frameledger.evolve import erasure
from frameledger.evolve.state import RequestParameters, State
from frameledger.ids import ContextId, Version
from frameledger_services.store.erasures import Beginning

REMEMBERED_IDS = 256
"""Number of recent frame ids in a head, so that an ordinary retry needs no query."""

BYTES_IN_MEMORY = 6
"""Upper estimate of the bytes in memory per byte of JSON: 5.4 for tools (nested objects of short texts), 1 for one long
text."""


FoldedBy = tuple[tuple[int, int], ...]
"""First versions in order, each with the fold version that folded the frames from there on."""


@dataclass(slots=True)
class Counters:
    """The counters in `contexts`."""

    messages: int = 0
    runs: int = 0
    calls: int = 0
    open_calls: int = 0
    interruptions: int = 0
    unknown: int = 0
    duplicates: int = 0


@dataclass(slots=True)
class Head:
    """The state of one conversation at its newest frame. One batch at a time changes it in place. The heads of a failed
    batch are dropped, since they may be ahead of the database."""

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
    origin: bytes | None = None
    """JSON of the moment from which it was forked, if a frame has named it since the head was stored."""

    experiment: bool | None = None
    """Whether it is an experiment, if a frame has said so since the head was stored."""

    stored: bool = False
    """Whether `contexts` has a row for it."""

    written: tuple[Any, ...] | None = None
    """What it last wrote of the columns that most frames do not change (`head_rows`); None if it wrote none of them."""

    rebuilt: int = 0
    """How often it had been rebuilt when it was loaded. The head of an earlier rebuild is refused."""

    folded_by: FoldedBy | None = None
    """The first versions that each fold version folded; None if the current one folded all frames."""

    saved_version: int | None = None
    """The version of the stored state; later frames are folded again when the head is loaded. None makes the next batch
    store the state."""

    state_bytes: int = 0
    """Length of the stored form of the state when it was last written or read."""

    unsaved_bytes: int = 0
    """Bytes of the frames that were folded since the state was stored."""

    saved_text: int = 0
    """Length of the open texts when the state was last stored."""

    first_text_of: tuple[str, int] | None = None
    """The run and attempt whose first text token was seen."""

    terms_bytes: int = 0
    """Length of the stored form of `weighed_terms`."""

    weighed_terms: RequestParameters | None = None

    erased_at: datetime | None = None
    """When its latest erasure was logged; None if there was none."""

    recent: dict[UUID, int] = field(default_factory=dict)
    """The recent frame ids, oldest first, with Python's hash of their values, which differs between processes. An
    `OrderedDict` would take twice the memory, an eighth of a head with a few frames."""

    @classmethod
    def new(cls, context_id: ContextId) -> Head:
        """Returns the head of a conversation without frames: version 0, and the first link of its chain."""
        return cls(context_id, State(context_id), first_link(context_id))

    @classmethod
    def after_erasure(cls, begins: Beginning) -> Head:
        """Returns the head of a conversation without frames since an erasure. It continues from that erasure."""
        context_id = ContextId(begins.context_id)
        state = erasure.beginning(context_id, Version(begins.version))
        head = cls(context_id, state, begins.chain, begins.version)
        head.last_at, head.erased_at = begins.logged_at, begins.at
        return head

    @property
    def is_blank(self) -> bool:
        """Whether it has no frame, or none since its erasure."""
        erased = self.state.erased
        return self.version == (0 if erased is None else erased.version)

    def park(self, error: str, now: datetime) -> None:
        """Store frames from the next one on without folding them."""
        self.parked_version = self.version + 1
        self.parked_error = error
        self.parked_at = now

    def remember(self, frame_id: UUID, value_hash: int) -> None:
        """Keep the id of a frame. A repeated id becomes the most recent again."""
        recent = self.recent
        recent.pop(frame_id, None)
        recent[frame_id] = value_hash
        if len(recent) > REMEMBERED_IDS:
            del recent[next(iter(recent))]

    def weight(self) -> int:
        """Returns an upper estimate of its bytes in memory. Cheap: the long parts of a state are measured only when
        they change, and when the state is stored."""
        terms = self.state.terms
        if terms is not self.weighed_terms:
            self.weighed_terms = terms
            self.terms_bytes = len(stored.dump(State(self.context_id, terms=terms)))
        known = self.state.calls
        calls = len(known.open) + len(known.barred) + len(known.ambiguous)
        state = BYTES_IN_MEMORY * max(self.state_bytes, self.terms_bytes)
        return 2_000 + 300 * calls + 200 * len(self.recent) + 4 * open_text(self.state) + state


def open_text(state: State) -> int:
    """Returns the number of characters of open text, by which the stored form of a state grows."""
    texts = [
        state.turn.words if state.turn is not None else None,
        state.speech.response.text if state.speech.response is not None else None,
        state.speech.thought.text if state.speech.thought is not None else None,
    ]
    return sum(text.length for text in texts if text is not None)
