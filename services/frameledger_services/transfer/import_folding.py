"""The frames of a file, folded into rows of this database.

The id of a frame that was published without one is derived from its place on the log (`record.derived_id`). On the log
of this database another record may get that place, and would count as a repetition. So such a frame gets a new id that
is derived from the old one, and frames that name it as their cause name the new id.

A parked frame is folded if this release can fold it; otherwise its conversation is omitted from the import. A frame of
an unknown type stays unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID, uuid5

from frameledger.chain import next_link
from frameledger.evolve.state import Runs, State
from frameledger.frames import EndFrame, encode_frame
from frameledger.ids import ContextId
from frameledger.values import replace
from frameledger_services.projector.head import Head
from frameledger_services.projector.refold import FoldedPiece, Refold, UnfoldableFrameError
from frameledger_services.projector.rows import FrameRow, Rows
from frameledger_services.store.frame_ids import frame_uuid
from frameledger_services.store.stored_rows import StoredFrameRow
from frameledger_services.store.transfer import NO_LOG_GENERATION, NO_LOG_PARTITION
from frameledger_services.transfer.lines import BadFileError, FrameLine, Header

SOURCE = "frameledger/import"

IDS = UUID("6d2a1c0e-8f3b-5a47-9c15-3e7d40b8a2f6")
"""The namespace of the new ids. It never changes, because stored ids derive from it."""


class ImportFolding:
    """A conversation of a file while it is folded."""

    def __init__(self, header: Header) -> None:
        self._header = header
        self._refold = Refold(Head.new(ContextId(header.context_id)))
        self.refolded: list[int] = []
        self.unfoldable: str | None = None
        """Why this release cannot fold the conversation, which was parked when it was exported."""

    @property
    def head(self) -> Head:
        return self._refold.head

    @property
    def is_left_open(self) -> bool:
        return is_open(self.head.state)

    def fold(self, page: Sequence[FrameLine]) -> FoldedPiece:
        """Fold some frames, up to a parked one that cannot be folded (`unfoldable`). Raises `BadFileError` if any other
        frame cannot be folded."""
        last = self.head.last_at
        stored = [_stored(one) for one in page]
        try:
            piece = self._refold.fold(stored)
        except UnfoldableFrameError as error:
            at = next((one for one in page if one.version == error.version), page[0])
            if at.outcome != "parked":
                raise BadFileError(at.line, f"{self._header.context_id!r}: {error}") from error
            self.unfoldable, piece = str(error), error.piece
        for line, derived, own_id in zip(
            page[: len(piece.derived)], piece.derived, piece.own_ids, strict=True
        ):
            if own_id is not None and frame_uuid(own_id) != line.frame_id:
                raise BadFileError(
                    line.line, f"the payload has the id {own_id!r}, and the line {line.frame_id}"
                )
            if last is not None and line.logged_at < last:
                raise BadFileError(
                    line.line, f"version {line.version} was logged before the previous version"
                )
            last = line.logged_at
            if derived.type == "LLMContextEraseFrame":
                raise BadFileError(line.line, "it erases the conversation, and no export contains an erasure")
            if (derived.outcome, derived.reason) != (line.outcome, line.reason) and len(
                self.refolded
            ) < _A_FEW:
                self.refolded.append(line.version)
        return piece

    def rows(self, page: Sequence[FrameLine], moved: set[UUID]) -> Rows:
        """Returns the rows of some frames, including those of `frames`. `moved` has the new ids of earlier frames that
        were published without one, as far as they are causes here; the new ids of this page are added to it."""
        piece = self.fold(page)
        rows = piece.rows
        for line, derived, own_id in zip(page, piece.derived, piece.own_ids, strict=True):
            frame_id, cause = line.frame_id, line.causation_id
            if own_id is None:
                frame_id = moved_id(frame_id)
                moved.add(frame_id)
            if cause is not None and moved_id(cause) in moved:
                cause = moved_id(cause)
            row = FrameRow(
                context_id=self._header.context_id,
                version=line.version,
                frame_id=frame_id,
                logged_at=line.logged_at,
                offset=line.version,
                partition=NO_LOG_PARTITION,
                source=line.source,
                trace_id=line.trace_id,
                chain=line.chain,
                payload=line.payload,
                generation=NO_LOG_GENERATION,
                causation_id=cause,
                **derived._asdict(),
            )
            rows.frames.append(row)
        return rows

    def closing(self) -> FrameLine | None:
        """Returns the frame that settles the open work, or None if there is none."""
        head = self.head
        if not is_open(head.state):
            return None
        version, logged_at = head.version + 1, head.last_at
        assert logged_at is not None, "a conversation has a frame"
        own_id = uuid5(IDS, f"{head.chain.hex()}:{head.context_id}")
        payload = encode_frame(
            EndFrame(id=str(own_id), metadata={"why": "imported while something was open"})
        )
        chain = next_link(head.chain, version, SOURCE, payload)
        return FrameLine(0, version, own_id, SOURCE, logged_at, None, None, chain, "applied", None, payload)


_A_FEW = 10


def moved_id(frame_id: UUID) -> UUID:
    """Returns the new id of a frame that was published without one."""
    return uuid5(IDS, str(frame_id))


def is_open(state: State) -> bool:
    """Returns whether a conversation that is not a recording has open work on which a worker or the timekeeper would
    act. Neither acts on a noted run: its answer comes from elsewhere, if at all (R4.5)."""
    if state.terms.recording:
        return False
    resting = replace(
        State(state.context_id, state.version, state.place, state.terms),
        speech=replace(state.speech, response=None, thought=None, bot_since=None),
        runs=Runs(noted=state.runs.noted),
        calls=replace(state.calls, open={}, groups={}),
        erased=state.erased,
        changed_version=state.changed_version,
        pace=state.pace,
    )
    return state != resting


def _stored(line: FrameLine) -> StoredFrameRow:
    # Columns derived from the payload are computed, not read from the file.
    return StoredFrameRow(
        version=line.version,
        logged_at=line.logged_at,
        source=line.source,
        payload=line.payload,
        chain=line.chain,
        frame_id=str(line.frame_id),
        produced_at=None,
        type="",
        outcome=line.outcome,
        reason=line.reason,
        run_id=None,
        tool_call_id=None,
    )
