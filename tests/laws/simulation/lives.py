"""The tables `frames` and `erasures` of the simulation: frames of the current life, receipts of the earlier ones."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from frameledger.chain import first_link, next_link
from frameledger.evolve import erasure
from frameledger.fold import Conversation
from frameledger.frames import AnyFrame, LLMContextEraseFrame, encode_frame
from frameledger.ids import ContextId, Version

CONTEXT = ContextId("talk")


@dataclass(frozen=True)
class FrameRow:
    """A row of `frames`."""

    version: int
    frame: AnyFrame
    chain: bytes
    logged_at: datetime
    stored_at: float


@dataclass(frozen=True)
class Receipt:
    """A row of `erasures`."""

    version: int
    frame_id: str | None
    frame_count: int
    chain: bytes


@dataclass(frozen=True)
class Lives:
    """Both tables as one value, so that a standby has either the old one or the new one."""

    frames: tuple[FrameRow, ...] = ()
    receipts: tuple[Receipt, ...] = ()

    @property
    def chain(self) -> bytes:
        """The newest link of the chain, of a frame or of a receipt."""
        if self.frames:
            return self.frames[-1].chain
        return self.receipts[-1].chain if self.receipts else first_link(CONTEXT)

    def after(self, version: int, frame: AnyFrame, at: datetime, now: float) -> Lives:
        """The tables with one more frame, or without those that it erases."""
        chain = next_link(self.chain, version, None, encode_frame(frame))
        if isinstance(frame, LLMContextEraseFrame):
            return Lives((), (*self.receipts, Receipt(version, frame.id, len(self.frames), chain)))
        return Lives((*self.frames, FrameRow(version, frame, chain, at, now)), self.receipts)

    def beginning(self) -> tuple[Conversation, Lives]:
        """The conversation, and these tables, before the first of the frames."""
        if not self.receipts:
            return Conversation.new(CONTEXT), Lives()
        state = erasure.beginning(CONTEXT, Version(self.receipts[-1].version))
        erased_by = frozenset(one.frame_id for one in self.receipts if one.frame_id is not None)
        return Conversation(state, erasure_ids=erased_by), Lives((), self.receipts)
