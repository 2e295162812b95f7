"""The provider `scripted`: a model that plays a script. Equal requests get equal answers.

It is meant for demonstrations, tests and benchmarks. It needs no connection and no key.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from typing import Any, ClassVar, Self

from frameledger.context import LLMSpecificMessage
from frameledger.frames import (
    AnyFrame,
    FunctionCallFromLLM,
    LLMFullResponseEndFrame,
    LLMTextFrame,
    LLMThoughtEndFrame,
    LLMThoughtStartFrame,
    LLMThoughtTextFrame,
    Usage,
)
from frameledger_services.providers import errors, script
from frameledger_services.providers.adapter import LLMAdapter, Prompt
from frameledger_services.providers.request import Request
from frameledger_services.providers.script import Call, Delay, Fail, Reply, Script, Text, Thought
from frameledger_services.providers.scripted_choice import cue_of, fits, repeated
from frameledger_services.providers.service import LLMService
from frameledger_services.providers.settings import LLMSettings
from frameledger_services.providers.tool_forms import Function
from frameledger_services.settings import Settings

_PIECES = re.compile(r"\s*\S+|\s+$")
"""A word with the space before it, as models cut their tokens."""


class ScriptedLLMAdapter(LLMAdapter):
    """Writes the prompt itself as the request. It supports every setting, tool and message."""

    provider = "scripted"
    settings_mapped = frozenset(LLMSettings.model_fields)
    own_messages_are_standard = True

    def body(self, prompt: Prompt) -> dict[str, Any]:
        settings = prompt.settings.model_dump(
            exclude_none=True, exclude={"model", "system_instruction", "extra"}
        )
        body: dict[str, Any] = {"model": prompt.model, **settings}
        if prompt.system is not None:
            body["system"] = prompt.system
        body["messages"] = [m.to_wire() if isinstance(m, LLMSpecificMessage) else m for m in prompt.messages]
        if prompt.tools:
            body["tools"] = [
                {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
                if isinstance(tool, Function)
                else tool.definition
                for tool in prompt.tools
            ]
        if prompt.tool_choice is not None:
            body["tool_choice"] = prompt.tool_choice.name or prompt.tool_choice.mode
        return body


class ScriptedLLMService(LLMService[ScriptedLLMAdapter]):
    """Streams answers from a script, in pieces of about one token, at the script's pace."""

    provider = "scripted"
    adapter_class = ScriptedLLMAdapter
    default_model: ClassVar[str | None] = "scripted"

    def __init__(self, *, script: Script | None = None, **options: Any) -> None:
        """Without a script it repeats the last message. `options` are those of `LLMService`."""
        super().__init__(**options)
        self._script = script or Script()
        self._use_counts: Counter[tuple[str, int]] = Counter()
        self.open_streams = 0
        """The number of answers in progress."""

    @classmethod
    def configured(cls, settings: Settings, /, **options: Any) -> Self:
        """Returns the service with the script of the setting `inference_script`. Raises `ScriptError`."""
        if settings.inference_script is not None and "script" not in options:
            options["script"] = script.read(settings.inference_script)
        return cls(**options)

    @classmethod
    def missing(cls, settings: Settings) -> None:
        """See the base. Raises `ScriptError` for a script that cannot be played."""
        if settings.inference_script is not None:
            script.read(settings.inference_script)

    async def _stream(self, request: Request) -> AsyncGenerator[AnyFrame, None]:
        self.open_streams += 1
        try:
            async for frame in self._say(self._reply(request), request):
                yield frame
        finally:
            self.open_streams -= 1

    def _reply(self, request: Request) -> Reply:
        cue = cue_of(request.body["messages"])
        for place, reply in enumerate(self._script.replies):
            key = (request.sha256, place)
            if fits(reply.when, cue) and (reply.times is None or self._use_counts[key] < reply.times):
                if reply.times is not None:
                    self._use_counts[key] += 1
                return reply
        return Reply(say=(Text(text=repeated(cue)),))

    async def _say(self, reply: Reply, request: Request) -> AsyncGenerator[AnyFrame, None]:
        pace = _Pace(self._script.pace)
        limit = request.body.get("max_completion_tokens") or request.body.get("max_tokens")
        calls: list[FunctionCallFromLLM] = []
        thinking = speaking = 0
        cut_short = False
        for step in reply.say:
            if cut_short:
                break
            match step:
                case Text():
                    for piece in _pieces(step.text):
                        cut_short = limit is not None and speaking >= limit
                        if cut_short:
                            break
                        await pace.wait()
                        speaking += 1
                        yield LLMTextFrame(text=piece)
                case Thought():
                    yield LLMThoughtStartFrame(append_to_context=step.keep, llm=self.provider)
                    for piece in _pieces(step.thought):
                        await pace.wait()
                        thinking += 1
                        yield LLMThoughtTextFrame(text=piece)
                    yield LLMThoughtEndFrame(signature=step.signature)
                case Call():
                    if request.body.get("tool_choice") != "none":
                        calls.append(_call(step, request, len(calls)))
                case Delay():
                    await asyncio.sleep(step.delay)
                    pace.pause(step.delay)
                case Fail():
                    if step.fail == "timeout":
                        # Silent until the requesting service times out.
                        await asyncio.Event().wait()
                    raise _failure(step)
        if calls:
            yield self.announcement(request, calls)
        yield LLMFullResponseEndFrame(
            finish_reason="length"
            if cut_short
            else reply.finish_reason or ("tool_calls" if calls else "stop"),
            usage=reply.usage or _counted(request, thinking, speaking),
        )


class _Pace:
    """Waits so that pieces come at a constant rate, by the clock and not by the sum of the waits."""

    def __init__(self, rate: float | None) -> None:
        self._step = None if rate is None else 1 / rate
        self._next = asyncio.get_running_loop().time()

    async def wait(self) -> None:
        if self._step is None:
            # Even the fastest model lets other tasks run.
            await asyncio.sleep(0)
            return
        self._next += self._step
        await asyncio.sleep(max(0.0, self._next - asyncio.get_running_loop().time()))

    def pause(self, seconds: float) -> None:
        self._next += seconds


def _pieces(text: str) -> list[str]:
    return _PIECES.findall(text)


def _call(step: Call, request: Request, ordinal: int) -> FunctionCallFromLLM:
    name = step.id or f"call_{request.sha256[:20]}_{ordinal + 1}"
    return FunctionCallFromLLM(function_name=step.call, tool_call_id=name, arguments=step.arguments)


def _counted(request: Request, thinking: int, speaking: int) -> Usage:
    read = json.dumps(request.body["messages"], ensure_ascii=False)
    return Usage(
        input_tokens=len(_pieces(read)), output_tokens=thinking + speaking, reasoning_tokens=thinking or None
    )


_FAILURES: Mapping[str, type[errors.ProviderError]] = {
    "overloaded": errors.ProviderUnavailableError,
    "rate_limited": errors.ProviderUnavailableError,
    "connection_lost": errors.ConnectionLostError,
    "cut": errors.ConnectionLostError,
    "refused_context": errors.RefusedContextError,
    "refused": errors.ProviderRefusedError,
    "incomplete_call": errors.IncompleteCallError,
}


def _failure(step: Fail) -> errors.ProviderError:
    sentence = step.message or f"The script makes the provider fail here ({step.fail})."
    kind = _FAILURES[step.fail]
    if kind is errors.ProviderUnavailableError:
        code = "rate_limited" if step.fail == "rate_limited" else None
        return errors.ProviderUnavailableError(sentence, code=code, retry_after=step.retry_after)
    return kind(sentence)
