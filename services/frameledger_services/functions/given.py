"""What handlers are given beside their call: the running service, and a model."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

from frameledger.context import LLMContext
from frameledger.frames import AnyFrame
from frameledger_services.functions.params import FunctionServiceLike
from frameledger_services.functions.reporting import from_anywhere
from frameledger_services.providers.service import LLMService


class InContext:
    """The running service, for the handler of one call: `FunctionCallParams.pipeline_worker`."""

    def __init__(
        self, service: FunctionServiceLike, context_id: str, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.service = service
        self.context_id = context_id
        self._loop = loop

    def push_frame(self, frame: AnyFrame, direction: object = None) -> Awaitable[None]:
        """Publish a frame to this conversation, within the lease. Awaited, or blocking in a plain function."""
        pushed: Awaitable[None] = from_anywhere(
            self._loop, self.service.push_frame(self.context_id, frame, direction)
        )
        return pushed


class InferenceHandle:
    """A model for handlers: `run_inference`, and nothing else of the service behind it."""

    def __init__(self, model: LLMService[Any], loop: asyncio.AbstractEventLoop) -> None:
        self._model = model
        self._loop = loop

    def run_inference(
        self, context: LLMContext, max_tokens: int | None = None, system_instruction: str | None = None
    ) -> Awaitable[str | None]:
        """As `LLMService.run_inference`. Awaited, or in a plain function blocking and returning the text itself."""
        answer: Awaitable[str | None] = from_anywhere(
            self._loop, self._model.run_inference(context, max_tokens, system_instruction)
        )
        return answer
