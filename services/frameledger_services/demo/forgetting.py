"""The second conversation of the demo, which is erased."""

from __future__ import annotations

from dataclasses import dataclass

from frameledger.frames import LLMContextEraseFrame
from frameledger.ids import ContextId
from frameledger_services.client import Client, Receipt
from frameledger_services.demo import recording
from frameledger_services.demo.recording import Stage
from frameledger_services.demo.talk import Talk


@dataclass(frozen=True, slots=True)
class Forgotten:
    """The receipt of the erasure, and the number of frames of the conversation that are still stored."""

    receipt: Receipt
    frames: int

    @property
    def right(self) -> bool:
        """Whether every published frame was deleted and none is left."""
        published = len(recording.lines(recording.FORGOTTEN)) - 1
        return self.receipt.frame_count == published and not self.frames


async def forget(client: Client, context_id: ContextId, stage: Stage) -> Forgotten:
    """Publish the recorded conversation and erase it. Returns after the erasure. Raises what `Client.erase` raises."""
    talk = Talk(context_id)
    *spoken, last = [
        (line, recording.frame_of(line, stage, talk)) for line in recording.lines(recording.FORGOTTEN)
    ]
    for line, frame in spoken:
        if frame is not None:
            await client.publish(context_id, frame, source=line.source)
    erasing_frame = last[1]
    assert isinstance(erasing_frame, LLMContextEraseFrame)
    receipt = await client.erase(context_id, why=erasing_frame.why, requested_by=erasing_frame.requested_by)
    left = [stored async for stored in client.frames(context_id)]
    return Forgotten(receipt, len(left))
