"""`FrameledgerLLMService`: a Pipecat LLM service whose answers come from Frameledger's inference workers."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from frameledger.frames import AnyFrame, LLMThoughtEndFrame, LLMThoughtStartFrame, LLMThoughtTextFrame, Usage
from frameledger_services.client import StoredFrame
from frameledger_services.extras import needed
from frameledger_services.pipecat.answer_listener import AnswerListener
from frameledger_services.pipecat.capture import ON_THE_LOG
from frameledger_services.pipecat.errors import AskingError
from frameledger_services.pipecat.observer import FrameledgerObserver
from frameledger_services.pipecat.run_answer import AnswerEnded, AnswerPart, AnswerRestarted
from frameledger_services.pipecat.service_calls import ServiceCalls
from frameledger_services.pipecat.side_conversation import SideQuestion
from frameledger_services.pipecat.values import REQUEST_SETTINGS, from_json, request_settings, to_json

with needed("pipecat"):
    from pipecat.frames import frames as theirs
    from pipecat.metrics.metrics import LLMTokenUsage
    from pipecat.processors.frame_processor import FrameDirection
    from pipecat.services.llm_service import LLMService
    from pipecat.services.settings import LLMSettings

logger = logging.getLogger("frameledger.pipecat")

BEGIN_SECONDS = 10.0
SILENT_SECONDS = 300.0

_SETTINGS = (*REQUEST_SETTINGS, "filter_incomplete_user_turns", "user_turn_completion_config")

_OF_AN_ANSWER = (
    theirs.LLMFullResponseStartFrame,
    theirs.LLMFullResponseEndFrame,
    theirs.LLMTextFrame,
    theirs.LLMThoughtStartFrame,
    theirs.LLMThoughtTextFrame,
    theirs.LLMThoughtEndFrame,
)

_OF_A_CALL = (
    theirs.FunctionCallInProgressFrame,
    theirs.FunctionCallResultFrame,
    theirs.FunctionCallCancelFrame,
)

ANOTHER_CONTEXT = "Only the context that the observer records can be answered."


class FrameledgerLLMService(LLMService):
    """A Pipecat LLM service that is answered by Frameledger's inference workers.

        ledger = FrameledgerObserver("call-7")
        llm = FrameledgerLLMService(ledger)  # instead of OpenAILLMService(...)
        context = await ledger.restore(tools=[get_weather])

    The context stays Pipecat's. `ledger` records it and need not be among the observers of the worker. A request for
    another context fails with an `ErrorFrame`, because its messages are not on the log. A worker that dies during an
    answer is replaced, and an interruption closes the model's stream. Functions of the application run in this process,
    once their start is on the log; all others run in services of `frameledger run functions`. A request that is not
    answered ends with an `ErrorFrame` and never blocks the pipeline.
    """

    def __init__(
        self,
        ledger: FrameledgerObserver,
        *,
        begin_secs: float = BEGIN_SECONDS,
        silent_secs: float = SILENT_SECONDS,
        settings: LLMSettings | None = None,
        **options: Any,
    ) -> None:
        """`settings` choose the model and its parameters, as for every Pipecat service.

        A request fails if no worker starts within `begin_secs`, or if a run produces no frame for `silent_secs`. Raises
        RuntimeError if the ledger has started or has an LLM service already.
        """
        complete = LLMSettings(**dict.fromkeys(_SETTINGS))
        if settings is not None:
            complete.apply_update(settings)
        super().__init__(settings=complete, **options)
        self._ledger = ledger
        self._requests = ledger.inference_requests()
        self._begin_secs = begin_secs
        self._silent_secs = silent_secs
        self._listener = AnswerListener(self._requests, begin_secs, silent_secs)
        self._error_is_recorded = False
        self._calls = ServiceCalls(self, self._requests, begin_secs)

    def can_generate_metrics(self) -> bool:
        return True

    async def start(self, frame: Any) -> None:
        await super().start(frame)
        self._ledger.attach(self.pipeline_worker)
        restored = self._ledger.restored
        self._requests.follow(self._take, None if restored is None else restored.version)

    async def cleanup(self) -> None:
        self._requests.stop()
        await self._calls.end()
        await super().cleanup()

    async def process_frame(self, frame: Any, direction: Any) -> None:
        await super().process_frame(frame, direction)
        if not isinstance(frame, theirs.LLMContextFrame):
            if isinstance(frame, theirs.InterruptionFrame):
                self._requests.flush()
            await self.push_frame(frame, direction)
        elif getattr(frame, "speculation", False):
            await self._decline_speculation()
        elif frame.context is not self._requests.context:
            await self.push_error(ANOTHER_CONTEXT)
        else:
            await self._answer(frame.context)

    async def _decline_speculation(self) -> None:
        """Decline a speculative request: it uses a copy of the context, which is not recorded, and the turn is answered
        at its end. If the turn ended while this service was busy, the request is confirmed and has to be answered,
        because no other one follows."""
        gate = getattr(self, "_speculation_gate", None)
        if gate is None or gate.is_speculating:
            await self.broadcast_frame(theirs.EagerEndOfTurnCancelFrame)
        elif not self.has_queued_frame(theirs.LLMContextFrame):
            await self._answer(self._requests.context)

    async def run_inference(
        self,
        context: Any,
        max_tokens: int | None = None,
        system_instruction: str | None = None,
        response_schema: dict[str, Any] | None = None,
    ) -> str | None:
        """Returns the answer to another context, such as for a summary of this one; None if it has no text.

        The request is a conversation of its own, whose id starts with this one's and whose first frame names this one,
        so it is recorded too. It offers no functions. A `response_schema` is ignored with a warning, as Pipecat
        requires of a service that cannot enforce one: only the worker knows which provider answers. Raises
        `AskingError` if the request is not answered.
        """
        if response_schema is not None:
            logger.warning("%s: response_schema is not supported and is ignored", self)
        all_settings = request_settings(self._settings) | {
            name: value
            for name, value in (("max_tokens", max_tokens), ("system_instruction", system_instruction))
            if value is not None
        }
        settings = {name: value for name, value in all_settings.items() if value is not None}
        messages = [to_json(one) for one in context.messages]
        about = self._ledger.context_id
        return await self._requests.ask_outside(
            SideQuestion(about, messages, settings, self._begin_secs, self._silent_secs)
        )

    async def push_frame(self, frame: Any, direction: Any = FrameDirection.DOWNSTREAM) -> None:
        if self._is_recorded(frame):
            frame.metadata[ON_THE_LOG] = True
        await super().push_frame(frame, direction)

    async def broadcast_frame(self, frame_cls: Any, **fields: Any) -> None:
        if frame_cls in _OF_A_CALL:
            await self._calls.before_broadcast(frame_cls, fields)
        await super().broadcast_frame(frame_cls, **fields)

    def _is_recorded(self, frame: Any) -> bool:
        if isinstance(frame, _OF_AN_ANSWER):
            return self._listener.has_asked
        if isinstance(frame, theirs.ErrorFrame):
            return self._error_is_recorded
        return self._calls.is_recorded(frame)

    def _take(self, stored: StoredFrame, frame: AnyFrame) -> None:
        self._calls.take(stored, frame)
        self._listener.take(stored, frame)

    async def _answer(self, context: Any) -> None:
        ended: AnswerEnded | None = None
        try:
            await self.start_processing_metrics()
            await self.start_ttfb_metrics()
            ended = await self._push_answer()
            if ended.usage is not None:
                await self.start_llm_usage_metrics(_usage(ended.usage))
            await self._calls.begin(ended.calls, ended.group_id, context)
            if ended.failure is not None:
                self._error_is_recorded = not ended.is_new
                await self.push_error(ended.failure)
        except AskingError as error:
            await self.push_error(str(error), exception=error)
        finally:
            self._error_is_recorded = False
            has_asked = self._listener.has_asked
            if ended is None:
                self._listener.abandon()
            await self.stop_all_metrics()
            if has_asked:
                await self.push_frame(theirs.LLMFullResponseEndFrame())
            self._listener.end()

    async def _push_answer(self) -> AnswerEnded:
        """Request an answer and push it as it arrives. Raises `AskingError` if there is none, or it stops early."""
        # Pipecat's own tools that cancel calls: it adds them to requests that it sends itself.
        tools = self.get_llm_adapter().builtin_tools.values()
        await self._listener.ask(request_settings(self._settings), tools)
        await self.push_frame(theirs.LLMFullResponseStartFrame())
        while True:
            for part in await self._listener.more():
                if isinstance(part, AnswerEnded):
                    return part
                await self._push_part(part)

    async def _push_part(self, part: AnswerPart) -> None:
        match part:
            case str():
                await self.stop_ttfb_metrics()
                await self._push_llm_text(part)
            case LLMThoughtStartFrame():
                await self.push_frame(
                    theirs.LLMThoughtStartFrame(append_to_context=part.append_to_context, llm=part.llm)
                )
            case LLMThoughtTextFrame():
                await self.push_frame(theirs.LLMThoughtTextFrame(part.text))
            case LLMThoughtEndFrame():
                await self.push_frame(theirs.LLMThoughtEndFrame(signature=from_json(part.signature)))
            case AnswerRestarted():
                await self.push_frame(theirs.LLMFullResponseEndFrame())
                await self.push_frame(theirs.LLMFullResponseStartFrame())


def _usage(used: Usage) -> Any:
    counts: Mapping[str, int] = used.model_dump(exclude_none=True)
    read, written = counts.get("input_tokens", 0), counts.get("output_tokens", 0)
    return LLMTokenUsage(
        prompt_tokens=read,
        completion_tokens=written,
        total_tokens=read + written,
        cache_read_input_tokens=counts.get("cache_read_tokens"),
        cache_creation_input_tokens=counts.get("cache_write_tokens"),
        reasoning_tokens=counts.get("reasoning_tokens"),
    )
