"""Bots on the real Pipecat: a scripted model and a speech service that speaks word by word. No audio, no network.

A script goes on when something has happened, never when time has passed: a model that is to be interrupted stops at a
token, and says so.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pipecat.frames.frames import (
    CancelFrame,
    EndFrame,
    FunctionCallFromLLM,
    InterruptionFrame,
    LLMContextFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    LLMThoughtEndFrame,
    LLMThoughtStartFrame,
    LLMThoughtTextFrame,
    ProposedUserStartedSpeakingFrame,
    ProposedUserStoppedSpeakingFrame,
    TextFrame,
    TranscriptionFrame,
    TTSTextFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import (
    LLMContextAggregatorPair,
    LLMUserAggregatorParams,
)
from pipecat.processors.frame_processor import FrameProcessor
from pipecat.services.llm_service import LLMService
from pipecat.services.settings import LLMSettings
from pipecat.turns.user_turn_strategies import ExternalUserTurnStrategies
from pipecat.workers.runner import WorkerRunner
from tests.support.polling import look_again

NOTHING_TELLS = threading.Event()
"""Never set: the work of another thread or of Pipecat sets no event."""


async def until(true: Callable[[], bool]) -> None:
    """Wait until the condition holds."""
    while not true():
        await look_again()


@dataclass
class Answer:
    """The next answer of the model."""

    tokens: Sequence[str] = ()
    calls: Sequence[tuple[str, str, dict[str, Any]]] = ()
    thought: str | None = None
    signature: Any = None
    stops_at: int | None = None
    """It waits for an interruption before the token of this number."""


def complete_settings(**given: Any) -> LLMSettings:
    """Returns the settings of a service: Pipecat logs an error for each service with a setting that is not given."""
    names = {one.name for one in dataclasses.fields(LLMSettings)} - {"extra", "use_provider_thinking_default"}
    return LLMSettings(**(dict.fromkeys(names) | given))


class ScriptedModel(LLMService):
    def __init__(self, answers: Sequence[Answer]) -> None:
        settings = complete_settings(model="script-1", system_instruction="Be brief.")
        super().__init__(settings=settings)
        self.answers = list(answers)
        self.asked: list[list[Any]] = []
        self.stopped = asyncio.Event()
        self.answered = asyncio.Condition()
        self.count = 0

    async def process_frame(self, frame, direction):
        await super().process_frame(frame, direction)
        if not isinstance(frame, LLMContextFrame):
            await self.push_frame(frame, direction)
            return
        self.asked.append(json.loads(json.dumps(frame.context.messages, default=repr)))
        answer = self.answers.pop(0) if self.answers else Answer(["Yes."])
        await self.push_frame(LLMFullResponseStartFrame())
        try:
            await self._answer(answer, frame.context)
        finally:
            await self.push_frame(LLMFullResponseEndFrame())
            async with self.answered:
                self.count += 1
                self.answered.notify_all()

    async def _answer(self, answer: Answer, context: LLMContext) -> None:
        if answer.thought is not None:
            await self.push_frame(LLMThoughtStartFrame(append_to_context=True, llm="script"))
            await self.push_frame(LLMThoughtTextFrame(answer.thought))
            await self.push_frame(LLMThoughtEndFrame(signature=answer.signature))
        for number, token in enumerate(answer.tokens):
            if number == answer.stops_at:
                self.stopped.set()
                await asyncio.Event().wait()
            await self.push_frame(LLMTextFrame(token))
        if answer.calls:
            await self.run_function_calls(
                [
                    FunctionCallFromLLM(function_name=name, tool_call_id=id_, arguments=args, context=context)
                    for name, id_, args in answer.calls
                ]
            )

    async def until_answered(self, count: int) -> None:
        async with self.answered:
            await self.answered.wait_for(lambda: self.count >= count)


class Speaker(FrameProcessor):
    """Speaks the model's text word by word, as a service with word timestamps does."""

    def __init__(self) -> None:
        super().__init__()
        self.stops_after: int | None = None
        self.stopped = asyncio.Event()
        self.spoken = 0

    async def process_frame(self, frame, direction):
        await super().process_frame(frame, direction)
        if isinstance(frame, LLMTextFrame):
            frame.append_to_context = False
            await self.push_frame(frame, direction)
            for word in frame.text.split():
                if self.stops_after is not None and self.spoken >= self.stops_after:
                    self.stops_after = None
                    self.stopped.set()
                    await asyncio.Event().wait()
                self.spoken += 1
                await self.push_frame(TTSTextFrame(word, "word"), direction)
        else:
            await self.push_frame(frame, direction)


class Passing(FrameProcessor):
    """The last processor: records the frames that reach it."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.news = asyncio.Condition()

    async def process_frame(self, frame, direction):
        await super().process_frame(frame, direction)
        async with self.news:
            self.seen.append(type(frame).__name__)
            self.news.notify_all()
        await self.push_frame(frame, direction)

    async def until(self, name: str, count: int = 1) -> None:
        async with self.news:
            await self.news.wait_for(lambda: self.seen.count(name) >= count)


@dataclass
class Bot:
    """A pipeline with an observer, and the actions of a test."""

    answers: Sequence[Answer] = ()
    speaks: bool = False
    context: LLMContext = field(default_factory=LLMContext)
    observers: list[Any] = field(default_factory=list)
    extra: Sequence[FrameProcessor] = ()
    mutes: Sequence[Any] = ()
    """Strategies that mute the user."""

    ended: bool = False
    service: Any = None
    """Replaces the scripted model."""

    voice: Any = None
    """Replaces the speaker."""

    enable_rtvi: bool = False

    def __post_init__(self) -> None:
        self.model = self.service or ScriptedModel(self.answers)
        self.speaker = self.voice or Speaker()
        self.last = Passing()
        params = LLMUserAggregatorParams(
            user_turn_strategies=ExternalUserTurnStrategies(), user_mute_strategies=list(self.mutes)
        )
        self.user, self.assistant = LLMContextAggregatorPair(self.context, user_params=params)
        middle = [self.speaker] if self.speaks else []
        self.pipeline = Pipeline([self.user, *self.extra, self.model, *middle, self.assistant, self.last])
        self.worker = PipelineWorker(
            self.pipeline,
            observers=list(self.observers),
            cancel_on_idle_timeout=False,
            enable_rtvi=self.enable_rtvi,
        )

    async def run(self, play: Callable[[Bot], Awaitable[object]]) -> None:
        """Run the pipeline while `play` runs, then end it unless `play` did."""
        started = asyncio.Event()
        self.worker.add_event_handler("on_pipeline_started", lambda *_: started.set())
        runner = WorkerRunner(handle_sigint=False)
        await runner.add_workers(self.worker)
        running = asyncio.create_task(runner.run())
        try:
            await started.wait()
            await play(self)
        finally:
            if not self.ended:
                await self.queue(EndFrame())
            await running

    async def say(self, *words: str) -> None:
        """Play a complete user turn."""
        await self.queue(ProposedUserStartedSpeakingFrame())
        for text in words:
            await self.queue(TranscriptionFrame(text, "user", "2026-01-01T00:00:00Z", finalized=True))
        await self.queue(ProposedUserStoppedSpeakingFrame())

    async def ask(self, *words: str) -> None:
        """Play a user turn and wait for the complete answer."""
        count = self.model.count
        await self.say(*words)
        await self.model.until_answered(count + 1)
        await self.settle()

    async def interrupt(self) -> None:
        await self.queue(InterruptionFrame())
        await self.settle()

    async def interrupt_only(self) -> None:
        """Push frames past the queue, as a user who speaks while the pipeline ends."""
        await self.pipeline.queue_frame(InterruptionFrame())

    async def queue(self, *frames: Any) -> None:
        self.ended |= any(isinstance(one, EndFrame | CancelFrame) for one in frames)
        await self.worker.queue_frames(frames)

    async def until_heard(self, count: int) -> None:
        """Wait until the assistant aggregator has this number of pieces of the answer. An interruption drops pieces
        that have not reached it."""
        await until(lambda: len(self.assistant._aggregation) >= count)

    async def settle(self) -> None:
        """Wait until all queued frames are processed."""
        count = self.last.seen.count("_Mark")
        await self.queue(_Mark())
        await self.last.until("_Mark", count + 1)


from pipecat.frames.frames import DataFrame  # noqa: E402


@dataclass
class _Mark(DataFrame):
    """Passes through the pipeline after all frames queued before it."""


__all__ = ["Answer", "Bot", "CancelFrame", "TextFrame"]
