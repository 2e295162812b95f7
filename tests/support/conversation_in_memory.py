"""A fake of `Client` with one conversation in memory: the real fold, behind a connection that loses frames and
responses, as Kafka's may."""

import asyncio
from dataclasses import dataclass, field

from frameledger.fold import Conversation, Folding
from frameledger.ids import ContextId, Version
from frameledger_services.client import (
    EncodedFrame,
    FramesUnacknowledgedError,
    NoSuchContextError,
    StoredContext,
)


@dataclass
class Said:
    outcome: str
    reason: str | None


@dataclass
class ConversationInMemory:
    """The conversation `s`. `faults` has one fault for each publication: `lost` if the frames are lost, `unheard` if
    the acknowledgement is."""

    folding: Folding = field(default_factory=lambda: Folding(Conversation.new("s")))
    faults: list[str] = field(default_factory=list)
    became: dict[str, Said] = field(default_factory=dict)
    meanwhile: list = field(default_factory=list)
    gate: asyncio.Event | None = None
    frames: list = field(default_factory=list)

    async def publish(self, context_id, *inputs, within, wait=False):
        assert context_id == "s"
        frames = [one.frame if isinstance(one, EncodedFrame) else one for one in inputs]
        if self.gate is not None:
            await self.gate.wait()
        fault = self.faults.pop(0) if self.faults else None
        if fault == "lost":
            raise FramesUnacknowledgedError("lost", frames)
        while self.meanwhile:
            self.folding.step(self.meanwhile.pop(0))
        for frame in frames:
            step = self.folding.step(frame)
            if step is not None:
                self.frames.append(frame)
                self.became[frame.id] = Said(step.outcome, step.reason)
        if fault == "unheard":
            raise FramesUnacknowledgedError("the answer was lost", frames)
        # What comes late for an erased life is left out.
        return tuple(self.became.get(frame.id, Said("erased", None)) for frame in frames)

    async def context(self, context_id, version=None):
        conversation = self.folding.conversation()
        if not conversation.state.version:
            raise NoSuchContextError(context_id)
        return StoredContext(
            ContextId(context_id),
            Version(conversation.state.version),
            conversation.context,
            positions=tuple(position for position, _ in conversation.rows),
        )
