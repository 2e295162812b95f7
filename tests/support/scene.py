"""Open runs and dispatched calls for tests of workers and claims: made by the real fold, without Kafka."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tests.support.batches import TOPIC, Log, Projecting

from frameledger import effects
from frameledger.ids import ContextId, RunId, Version
from frameledger_services.work.effect_decoding import decode_effect


class Scene:
    """Conversations in a database, and the effects that their frames caused."""

    def __init__(self, address: str, topic: str = TOPIC) -> None:
        """`topic` is the topic of frames of the services under test."""
        self.address = address
        self._log = Log(topic)
        self._projected = 0
        self.runs: list[effects.RunInference] = []
        self.calls: list[effects.CallFunction] = []
        self.cancels: list[effects.Cancel] = []

    async def fold(self, *frames: tuple[str, dict[str, Any]]) -> None:
        """Fold and store frames, each given as its context and its fields."""
        for context_id, frame in frames:
            self._log.add(context_id, json.dumps(frame).encode())
        async with Projecting(self.address, topic=self._log.topic) as projecting:
            await projecting.store(self._log.records[self._projected :])
            self._projected = len(self._log.records)
            for row in projecting.outbox:
                named = json.loads(row.value)["effect"]
                kinds = {"run_inference": self.runs, "call_function": self.calls, "cancel": self.cancels}
                kind = {
                    one.effect: one for one in (effects.RunInference, effects.CallFunction, effects.Cancel)
                }
                kinds[named].append(decode_effect(kind[named], row.value))  # type: ignore[attr-defined, type-var]

    async def ask(
        self, *context_ids: str, settings: dict[str, Any] | None = None
    ) -> list[effects.RunInference]:
        """Let each of these conversations request a run. Returns the effects."""
        before = len(self.runs)
        if settings is not None:
            await self.fold(
                *((one, {"type": "LLMUpdateSettingsFrame", "settings": settings}) for one in context_ids)
            )
        await self.fold(*((one, RUN) for one in context_ids))
        return self.runs[before:]

    async def call(
        self, context_id: str, *names: str, tools: Sequence[str] = (), **options: Any
    ) -> list[effects.CallFunction]:
        """Let a model call functions in a conversation that has these tools. Returns the effects."""
        if tools:
            wire = [{"type": "function", "function": {"name": name}} for name in tools]
            await self.fold((context_id, {"type": "LLMSetToolsFrame", "tools": wire}))
        before = len(self.calls)
        (run,) = await self.ask(context_id)
        calls = [
            {"tool_call_id": f"{context_id}-{number}", "function_name": name, "arguments": {"n": number}}
            | options
            for number, name in enumerate(names)
        ]
        of_run = {"run_id": run.run_id, "attempt": 1}
        await self.fold(
            (context_id, {"type": "LLMFullResponseStartFrame"} | of_run),
            (context_id, {"type": "FunctionCallsStartedFrame", "function_calls": calls} | of_run),
            (context_id, {"type": "LLMFullResponseEndFrame", "finish_reason": "tool_calls"} | of_run),
        )
        return self.calls[before:]

    async def start_call(self, call: effects.CallFunction, *, attempt: int, safe: bool) -> None:
        """Let a worker start a call."""
        await self.fold(
            (
                call.context_id,
                {
                    "type": "FunctionCallInProgressFrame",
                    "function_name": call.function_name,
                    "tool_call_id": call.tool_call_id,
                    "arguments": {},
                    "cancel_on_interruption": True,
                    "call_attempt": attempt,
                    "safe_to_retry": safe,
                },
            )
        )


RUN = {"type": "LLMMessagesAppendFrame", "messages": [{"role": "user", "content": "Hi"}], "run_llm": True}
INTERRUPTION = {"type": "InterruptionFrame"}


def made_up_run(number: int) -> effects.RunInference:
    """Returns an effect whose run is not in the database."""
    return effects.RunInference(
        f"effect-{number}", ContextId(f"nobody-{number}"), Version(1), RunId(f"run-{number}")
    )
