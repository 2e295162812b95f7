"""Folds a conversation again from its first frame on, in pieces of bounded size.

    refold = Refold(await stored_heads.beginning(connection, context_id))
    async for page in stored_rows.frames(connection, context_id, after=0, upto=version):
        piece = refold.fold(page)

A piece has the rows that a projector would write for these frames as one batch, made by the same code
(`projector.step_rows`). `projector.writer.write(connection, piece.rows, ())` writes them. Changes to rows of an earlier
piece are in `rows.ended`, `rows.run_patches` and `rows.call_patches`. `refold.head` is the head after the last piece:
its state, counters, version and chain. There are no effects.

Memory is bounded by one piece and the head, whatever the length of the conversation.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from frameledger.decoding import decode
from frameledger.errors import RefusedError
from frameledger.evolve import evolve
from frameledger.evolve.state import State
from frameledger.frames import (
    LLMContextFrame,
    LLMMessageRewriteFrame,
    LLMMessagesAppendFrame,
    LLMMessagesUpdateFrame,
)
from frameledger_services.projector.frame_row import named_id
from frameledger_services.projector.head import Head
from frameledger_services.projector.row_values import clean, time_of
from frameledger_services.projector.rows import Rows
from frameledger_services.projector.step_rows import write_step
from frameledger_services.projector.stored_heads import UNKNOWN
from frameledger_services.store.stored_rows import StoredFrameRow


class Derived(NamedTuple):
    """The columns of a frame that are derived from it and the frames before it: the last fields of `StoredFrameRow`."""

    produced_at: datetime | None
    type: str
    outcome: str
    reason: str | None
    run_id: str | None
    tool_call_id: str | None


@dataclass(frozen=True, slots=True)
class FoldedPiece:
    """Consecutive stored frames, the derived columns of each, and the rows that they write."""

    frames: Sequence[StoredFrameRow]
    derived: Sequence[Derived]
    own_ids: Sequence[str | None]
    """The ids in the payloads; None for a frame whose id is derived from its record."""

    rows: Rows
    client_written: frozenset[int]
    """The versions at which clients wrote messages."""


class UnfoldableFrameError(RefusedError):
    """A stored frame cannot be folded: its payload is no longer a valid frame, it makes the fold raise, or the frame
    before it is missing. `version` is that of the frame, and `piece` has the frames before it on its page.

    Remedy: `frameledger verify` says what else is wrong with its conversation.
    """

    def __init__(self, version: int, problem: str, piece: FoldedPiece) -> None:
        super().__init__(f"version {version} cannot be folded: {problem}")
        self.version = version
        self.problem = problem
        self.piece = piece


class Refold:
    """Folds the frames of one conversation, in order, each once."""

    def __init__(self, head: Head, *, unknown_again: bool = False, watched: Container[int] = ()) -> None:
        """`head` is that of `stored_heads.beginning`, or a later one to continue from, and is advanced in place.

        A frame that is stored as `unknown` changed nothing when it was first folded, and changes nothing here, even if
        this release knows its type; with `unknown_again` it is folded by its type if this release knows it. Frames that
        are stored as `parked` are folded, unless the caller omits them. The states at the versions `watched` are kept
        in `states`.
        """
        self.head = head
        self.states: dict[int, State] = {}
        self._unknown_again = unknown_again
        self._watched = watched
        self._client_written: set[int] = set()

    def fold(self, frames: Sequence[StoredFrameRow]) -> FoldedPiece:
        """Fold some frames. Raises `UnfoldableFrameError`; the head is then that of the frames before the unfoldable
        one.

        The head's chain is set to the stored one, which `chain_check` verifies.
        """
        rows, derived, own_ids = Rows(), list[Derived](), list[str | None]()
        self._client_written.clear()
        problem = None
        for stored_frame in frames:
            if stored_frame.version != self.head.version + 1:
                problem = f"version {self.head.version + 1} is missing"
                break
            try:
                self._step(stored_frame, rows, derived, own_ids)
            except Exception as error:
                problem = f"{type(error).__name__}: {error}"
                break
        folded = frames if problem is None else frames[: len(derived)]
        if folded:
            self.head.started_at = self.head.started_at or folded[0].logged_at
            self.head.last_at = folded[-1].logged_at
            self.head.chain = folded[-1].chain
        piece = FoldedPiece(folded, derived, own_ids, rows, frozenset(self._client_written))
        if problem is not None:
            raise UnfoldableFrameError(frames[len(derived)].version, problem, piece)
        return piece

    def _step(
        self, stored_frame: StoredFrameRow, rows: Rows, derived: list[Derived], own_ids: list[str | None]
    ) -> None:
        head = self.head
        before = head.state
        frame = decode(stored_frame.payload)
        folded = UNKNOWN if stored_frame.outcome == "unknown" and not self._unknown_again else frame
        step = evolve(before, folded, stored_frame.logged_at)
        write_step(rows, head, folded, step, before, stored_frame.logged_at)
        outcome, reason = step.outcome, step.reason
        derived.append(
            Derived(
                time_of(frame.produced_at),
                clean(frame.type),
                outcome,
                reason,
                named_id(frame, "run_id"),
                named_id(frame, "tool_call_id"),
            )
        )
        own_ids.append(frame.id)
        held = before.runs.wanted is not None and before.runs.wanted.held
        if type(folded) in _CLIENT_WRITES or held:
            # Any frame may write held messages, and those are a client's (R7.5).
            self._client_written.add(stored_frame.version)
        head.state = step.state
        head.version = stored_frame.version
        if outcome == "unknown":
            head.counters.unknown += 1
        if stored_frame.version in self._watched:
            self.states[stored_frame.version] = step.state


_CLIENT_WRITES = frozenset(
    {LLMMessagesAppendFrame, LLMMessagesUpdateFrame, LLMMessageRewriteFrame, LLMContextFrame}
)
