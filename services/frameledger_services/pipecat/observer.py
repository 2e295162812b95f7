"""`FrameledgerObserver`: records a Pipecat pipeline's conversation and restores it after a crash."""

from __future__ import annotations

import asyncio
import logging
import time
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal
from uuid import uuid4
from weakref import ReferenceType, ref

from frameledger.errors import TransientError
from frameledger.record import MAX_KEY_BYTES, is_context_id
from frameledger.tools import tool_names
from frameledger_services.client import Client
from frameledger_services.extras import needed
from frameledger_services.pipecat.capture import Capture
from frameledger_services.pipecat.hooks import Hooks
from frameledger_services.pipecat.inference_requests import InferenceRequests
from frameledger_services.pipecat.mirror import Mirror
from frameledger_services.pipecat.outbox import Outbox
from frameledger_services.pipecat.restore import Restored, for_pipecat, restore_conversation
from frameledger_services.pipecat.session_frames import SessionFrames
from frameledger_services.pipecat.terms import fits
from frameledger_services.pipecat.values import to_json, tools_to_json
from frameledger_services.settings import Settings

with needed("pipecat"):
    from pipecat import version as pipecat_version
    from pipecat.observers.base_observer import BaseObserver, ProcessorSetUp

SOURCE = "frameledger/pipecat"
FLUSH_SECONDS = 5.0
LOG_SECONDS = 60.0
POLL_SECONDS = 1.0

logger = logging.getLogger("frameledger.pipecat")

_CONTEXT_GIVEN = (
    "This observer records the context that it was given. Leave out `context`: restore() makes one."
)
_RESTORE_ONCE = "Call restore() once, and start the pipeline after it has returned."


class FramesLostError(TransientError):
    """Some frames of a pipeline were not published. The message says how many, and why.

    Remedy: Find out why the broker was not reachable. The messages are complete up to the newest published frame.
    """


class FrameledgerObserver(BaseObserver):
    """Publishes the frames of a pipeline and every change of its `LLMContext` as one conversation.

        ledger = FrameledgerObserver("call-7")
        worker = PipelineWorker(pipeline, observers=[ledger])

    It never slows down or ends the pipeline. While the broker is unreachable, frames wait in bounded memory; when it is
    full, evidence is dropped, never messages. One observer records one pipeline and one context.
    """

    def __init__(
        self,
        context_id: str,
        settings: Settings | None = None,
        *,
        context: Any = None,
        strict: bool = False,
        connect: Callable[[], Any] | None = None,
    ) -> None:
        """`settings` default to the environment and the stack that `frameledger up` runs, as for every client. Raises
        `SettingsError` for an invalid environment, ValueError for an invalid id.

        `context` is the `LLMContext` to record. By default it is the one that `restore` returns, otherwise that of the
        pipeline's first aggregator; those in branches come last. For a second context, such as a classifier's, add an
        observer with another id.

        With `strict`, `finish()` raises `FramesLostError` if a frame was not published; Pipecat logs an error that an
        observer raises at the end. `connect` creates another client than `Client`.
        """
        super().__init__()
        if not is_context_id(context_id):
            raise ValueError(
                f"{context_id!r} is not a context id: it must be text of 1 to {MAX_KEY_BYTES} bytes without NUL."
            )
        if connect is None:
            known = Settings.from_env() if settings is None else settings
            connect = lambda: Client(known, source=SOURCE)  # noqa: E731
        self.context_id = context_id
        self.session = uuid4()
        self._strict = strict
        self._failures: Counter[str] = Counter()
        self._logged_at = 0.0
        self._capture = Capture(self._note_failure)
        capture = self._capture
        if context is not None:
            capture.follow(context)
        self._outbox = Outbox(
            context_id, self.session, capture.items, connect, resend_history=capture.resend_history
        )
        self._hooks = Hooks(context_id, capture)
        self._session = SessionFrames(self.session, capture)
        self._opened = False
        self._ended = False
        self._is_restoring = False
        self._worker: ReferenceType[Any] | None = None
        """The worker whose pipeline is recorded."""

        self._has_logged_not_recorded = False
        self._watching: asyncio.Task[None] | None = None
        self._reason: str | None = None
        self.restored: Restored | None = None
        """The result of `restore`; None before."""

    @property
    def lag(self) -> float:
        """The age in seconds of the oldest unpublished frame; 0 if all are published."""
        return self._outbox.lag_seconds

    @property
    def lost(self) -> dict[str, int]:
        """The number of frames that are not on the log and will not be, by reason; empty if none is missing."""
        counts = {
            "dropped": self._outbox.dropped + self._capture.lost,
            "refused": self._outbox.refused + self._outbox.encoder.refused_here,
            "failures": sum(self._failures.values()) + self._outbox.failures,
            "unpublished": self._outbox.unpublished if self._ended else 0,
        }
        return {name: count for name, count in counts.items() if count}

    async def restore(
        self,
        messages: list[Any] | None = None,
        tools: Any = None,
        tool_choice: Any = None,
        *,
        open_calls: Literal["ambiguous", "keep"] = "ambiguous",
        within: float = 5.0,
        wait: float | None = None,
    ) -> Any:
        """Returns the `LLMContext` of this conversation for the aggregators of this pipeline: with `messages` if the
        conversation is new, otherwise with its stored messages.

        The process that kept the history before is fenced: its later changes of messages are ignored. Spoken and
        transcribed words that are in no message become messages, and a call that had started is reported as ambiguous,
        unless `open_calls` is "keep". The tools are `tools`, from the current code. `restored` has the details. Each of
        its two or three steps takes at most `within` seconds; `wait` is its old name.

        Raises what `Client.publish` and `Client.context` raise, `ConversationParkedError` for a conversation that is
        parked, `FrameRejectedError` for an erased one whose id is refused, `TakenOverError` if another process restores
        it at the same time, and RuntimeError if the pipeline has started, `restore` was called before, or the observer
        was given a `context`. After an error it can be called again, and nothing of it is left open.
        """
        if wait is not None:
            warnings.warn("restore(wait=...) is deprecated, use within", DeprecationWarning, stacklevel=2)
            within = wait
        if self._opened or self._is_restoring or self.restored is not None:
            raise RuntimeError(_RESTORE_ONCE)
        if self._capture.context is not None:
            raise RuntimeError(_CONTEXT_GIVEN)
        self._is_restoring = True
        try:
            return await self._restored(list(messages or []), tools, tool_choice, open_calls, within)
        except BaseException:
            if not self._opened:
                self._outbox.release()
            raise
        finally:
            self._is_restoring = False

    async def _restored(
        self, given_messages: list[Any], tools: Any, tool_choice: Any, open_calls: str, within: float
    ) -> Any:
        from pipecat.processors.aggregators import llm_context as theirs

        work = self._outbox.call(
            lambda client: restore_conversation(
                client,
                self.context_id,
                self.session,
                initial=[to_json(one) for one in given_messages],
                react=self._capture.is_answered_here,
                open_calls=open_calls,
                within=within,
            )
        )
        conversation = await asyncio.wrap_future(work)
        if self._opened:
            # The pipeline has started in the meantime with another context, which is recorded.
            raise RuntimeError(_RESTORE_ONCE)
        chosen = {} if tools is None else {"tools": tools}
        if tool_choice is None and fits(conversation.tool_choice, tools):
            tool_choice = conversation.tool_choice
        if tool_choice is not None:
            chosen["tool_choice"] = tool_choice
        messages = (
            given_messages  # complete, with media that are too large to store
            if conversation.restored.is_new and len(given_messages) == len(conversation.messages)
            else for_pipecat(conversation.messages, theirs.LLMSpecificMessage)
        )
        context = theirs.LLMContext(messages, **chosen)
        self._outbox.encoder.positions = conversation.positions
        mirror = Mirror(context.messages, known=conversation.next_is_known)
        self._capture.follow(context, mirror, conversation.tools, conversation.tool_choice)
        offered = set(tool_names(tools_to_json(context.tools)))
        changed = tuple(sorted(offered.symmetric_difference(tool_names(conversation.tools))))
        self._session.note_fenced(dict(conversation.restored.noted))
        self.restored = replace(
            conversation.restored, tools_changed=() if conversation.restored.is_new else changed
        )
        return context

    def inference_requests(self) -> InferenceRequests:
        """Returns the connection for a `FrameledgerLLMService`. From now on this conversation is answered by inference
        workers. Raises RuntimeError if it has started or has such a service already."""
        if self._opened or self.restored is not None:
            raise RuntimeError(
                "Create the FrameledgerLLMService before restore() and before the pipeline starts."
            )
        if self._capture.is_answered_here:
            raise RuntimeError("An observer can have only one FrameledgerLLMService.")
        self._capture.is_answered_here = True
        return InferenceRequests(self.context_id, self.session, self._capture, self._outbox)

    def note(self, **settings: Any) -> None:
        """Store values with the conversation, such as the state of a flow: `note(flow={"node": "menu"})`. They are in
        the setting `noted` of the stored context, and in `restored.noted` after a restore. None removes a value."""
        self._session.note(settings)

    async def on_processor_setup(self, data: ProcessorSetUp) -> None:
        """Called by Pipecat for each processor. At the first call all processors are known and get their handlers. Then
        this observer removes itself, because Pipecat would wake it for each push of each frame."""
        try:
            worker = data.processor.pipeline_worker
            self.attach(worker)
        except Exception as error:
            self._note_failure(error)
            return
        if self._opened:
            worker.task_manager.create_task(self._leave(worker), f"{self}::leave")

    def attach(self, worker: Any) -> None:
        """Capture the pipeline of this worker from now on. A worker does this with the observers that it was given."""
        is_another = self._worker is not None and self._worker() is not worker
        if self._ended or is_another:
            if not self._has_logged_not_recorded:
                self._has_logged_not_recorded = True
                logger.error(
                    "%s: this pipeline is not recorded: %s. Give each pipeline an observer of its own.",
                    self.context_id,
                    "the recording ended with the previous pipeline"
                    if self._ended
                    else "its observer records another pipeline",
                )
            return
        processors = self._hooks.hook(worker.pipeline)
        if not self._opened:
            self._opened = True
            self._worker = ref(worker)
            self._outbox.start()
            self._watching = asyncio.create_task(self._until_over(worker))
            self._session.begin(pipecat_version(), processors)
            worker.add_event_handler("on_pipeline_finished", self._on_finished)

    async def _leave(self, worker: Any) -> None:
        try:
            await worker.remove_observer(self)
        except Exception as error:
            self._note_failure(error)

    async def _until_over(self, worker: Any) -> None:
        """End the recording even if the pipeline never starts, because then no `on_pipeline_finished` is fired. Also
        polls the worker, because Pipecat 1.8 does not wake a wait for a worker that is cancelled during its setup."""
        waiting = asyncio.ensure_future(worker.wait())
        try:
            while not (waiting.done() or worker.has_finished()):
                await asyncio.wait([waiting], timeout=POLL_SECONDS)
        finally:
            waiting.cancel()
        await self._finish("CancelFrame")

    async def _on_finished(self, worker: Any, frame: Any) -> None:
        reason = getattr(frame, "reason", None)
        self._reason = None if reason is None else str(reason)
        await self._finish(type(frame).__name__)

    async def finish(self, within: float = FLUSH_SECONDS) -> None:
        """End the recording, and publish all waiting frames, for at most `within` seconds. Called automatically when
        the pipeline ends; if none has started, the end of the conversation is not recorded. With `strict`, raises
        `FramesLostError` if frames were lost."""
        await self._finish("EndFrame", within)
        if self._strict and self.lost:
            raise FramesLostError(
                f"Frames of the conversation {self.context_id!r} were not published: {self.lost}."
            ) from self._outbox.why

    async def _finish(self, kind: str, within: float | None = None) -> None:
        try:
            if not self._ended:
                self._ended = True
                # Otherwise the conversation may belong to another process.
                if self._opened:
                    self._capture.sync()
                    lost = {name: count for name, count in self.lost.items() if name != "unpublished"}
                    self._session.end(kind, self._reason, lost)
            await self._outbox.finish(FLUSH_SECONDS if within is None else within)
        except Exception as error:
            self._note_failure(error)

    def _note_failure(self, error: BaseException) -> None:
        """Count an internal error of the bridge; log one per minute."""
        self._failures[type(error).__name__] += 1
        now = time.monotonic()
        if now - self._logged_at > LOG_SECONDS:
            self._logged_at = now
            logger.error("%s: an error in the recording; it continues", self.context_id, exc_info=error)
