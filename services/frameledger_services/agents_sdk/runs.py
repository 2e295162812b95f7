"""Translates the SDK's runs to frames: answers of models, tool calls, handoffs and interruptions.

An answer is one request to a model, and counts as one run (RA5.counted). A conversation has one open answer at a time.
If answers overlap, as those of agents that run concurrently as tools of another agent, or of concurrent runs, the later
ones are published completely after the open one has ended.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from frameledger_services.agents_sdk.mirror import MIRROR
from frameledger_services.agents_sdk.values import (
    Fields,
    bounded,
    finish_reason_of,
    model_of,
    own_call_of,
    own_calls_of,
    text_of,
    usage_of,
)

MAX_RUNS = 64
"""Maximum runs that are kept. The SDK does not report the end of a run."""

MAX_HELD = 100
"""Maximum frames of completed answers that wait for the open one. Beyond it they are published first, and the open
answer is published again."""

_INTERRUPTION: Fields = {"type": "InterruptionFrame", "mirror": MIRROR}


@dataclass(eq=False)
class Run:
    """A `Runner.run` with its nested runs: agents that are tools share its usage object."""

    usage: Any
    scope: Any
    name: str = field(default_factory=lambda: str(uuid4()))
    calls: dict[Any, Fields] = field(default_factory=dict)
    """Open calls by the key of their SDK objects."""

    announced: dict[int, list[tuple[str, str, Any]]] = field(default_factory=dict)
    """Calls of the SDK's own tools in the newest answers that have not started, by the ids of their contexts."""

    waiting: dict[int, OpenAnswer] = field(default_factory=dict)
    """Answers that started while another one was open, by the ids of their contexts."""


@dataclass(eq=False)
class OpenAnswer:
    """The answer of a model that has started and not ended."""

    run: Run
    context: Any
    agent: Any

    @property
    def is_of_a_tool(self) -> bool:
        """Whether its agent is a tool of another agent."""
        return _is_of_a_tool(self.context)


class Runs:
    """The runs of one conversation. Each method returns the frames to publish."""

    def __init__(self, provider: str | None = None, model: str | None = None) -> None:
        self._provider, self._model = provider, model
        self._runs: OrderedDict[int, Run] = OrderedDict()
        self._answer: OpenAnswer | None = None
        """The open answer on the log."""
        self._held: list[Fields] = []

    def agent_started(self, scope: Any, context: Any, agent: Any) -> list[Fields]:
        run = self._run(scope, context)
        return [self._noted("AgentStartFrame", run, agent=agent.name)]

    def agent_ended(self, scope: Any, context: Any, agent: Any) -> list[Fields]:
        run = self._run(scope, context)
        return [self._noted("AgentEndFrame", run, agent=agent.name)]

    def handed_off(self, scope: Any, context: Any, by: Any, to: Any) -> list[Fields]:
        run = self._run(scope, context)
        return [self._noted("HandoffFrame", run, from_agent=by.name, to_agent=to.name)]

    def answer_started(self, scope: Any, context: Any, agent: Any) -> list[Fields]:
        """Called when a model is requested. An open answer of another run was interrupted, unless that run has a scope,
        which reports its end."""
        run = self._run(scope, context)
        frames: list[Fields] = []
        answer = self._answer
        if answer is not None and answer.run is not run and answer.run.scope is None:
            frames += self.interrupted([answer.run])
        elif not _is_of_a_tool(context):
            # The SDK continues once all tools are done, so nested answers failed, and their tools reported it.
            run.waiting.clear()
            if answer is not None and answer.run is run and answer.is_of_a_tool:
                frames += self._close_answer()
        started = OpenAnswer(run, context, agent)
        if self._answer is None:
            self._answer = started
            frames.append(self._start(run, agent))
        elif self._answer.context is not context:
            run.waiting[id(context)] = started
        return frames

    def answer_ended(self, scope: Any, context: Any, agent: Any, response: Any) -> list[Fields]:
        run = self._run(scope, context)
        run.waiting.pop(id(context), None)
        run.announced.pop(id(context), None)
        if own_calls := own_calls_of(response):
            run.announced[id(context)] = own_calls
        answer = self._answer
        is_open = answer is not None and answer.context is context and answer.agent is agent
        answer_frames = [] if is_open else [self._start(run, agent)]
        text = bounded(text_of(response))
        if text:
            shown_text = text if isinstance(text, str) else f"({text['omitted_bytes']} bytes)"
            answer_frames.append({"type": "LLMTextFrame", "text": shown_text})
        end: Fields = {"type": "LLMFullResponseEndFrame"}
        for name, value in (("finish_reason", finish_reason_of(response)), ("usage", usage_of(response))):
            if value is not None:
                end[name] = value
        answer_frames.append(end)
        if is_open or answer is None:
            return [*answer_frames, *self._close_answer()]
        self._held += answer_frames
        return self._close_answer() if len(self._held) > MAX_HELD else []

    def call_started(self, scope: Any, context: Any, tool: Any) -> list[Fields]:
        run = self._run(scope, context)
        if (kind := own_call_of(tool)) is None:
            id_, arguments = getattr(context, "tool_call_id", None), getattr(context, "tool_arguments", {})
        else:
            id_, arguments = _announced(run, context, tool, kind)
        call: Fields = {"function_name": tool.name, "tool_call_id": id_ or str(uuid4())}
        run.calls[_key(context, tool)] = call
        how = {"arguments": bounded(arguments), "cancel_on_interruption": True}
        return [{"type": "FunctionCallInProgressFrame", **call, **how, **_about(run)}]

    def call_ended(self, scope: Any, context: Any, tool: Any, result: Any, failed: bool) -> list[Fields]:
        """Called when a tool has returned. An agent that is a tool starts before its run waits for an approval, and
        ends in the resumed run, with another usage object, and maybe after its block or in another process. There it
        starts again, which the fold ignores for an open call."""
        run, key = self._run(scope, context), _key(context, tool)
        frames: list[Fields] = []
        started_in = next((one for one in (run, *self._runs.values()) if key in one.calls), None)
        if started_in is None:
            frames, started_in = self.call_started(scope, context, tool), run
        call = started_in.calls.pop(key)
        settled = {"settled_as": "failed" if failed else "done"}
        return [*frames, {"type": "FunctionCallResultFrame", **call, "result": bounded(result), **settled}]

    def end(self, scope: Any, error: str | None, is_run_error: bool = False) -> list[Fields]:
        """End the runs of a scope: open answers and calls were interrupted, or failed with an error of this name. With
        `is_run_error` it is the error of a run, even if nothing is open."""
        runs = [run for run in self._runs.values() if run.scope is scope]
        for run in runs:
            del self._runs[id(run.usage)]
        if error is None:
            return self.interrupted(runs)
        is_open = self._answers_for(runs) or any(run.calls or run.waiting for run in runs)
        return self._failed(runs, error) if is_run_error or is_open else []

    def interrupted(self, runs: list[Run]) -> list[Fields]:
        """Record these runs as interrupted. An interruption would also cancel the calls of other runs: while these have
        any, it is recorded for the open answer only."""
        waiting = _waiting(runs)
        is_alone = (self._answer is None or self._answers_for(runs)) and not any(
            run.calls for run in self._runs.values() if run not in runs
        )
        frames: list[Fields] = []
        if self._answers_for(runs) or (is_alone and any(run.calls for run in runs)):
            frames.append(_INTERRUPTION)
        for run in runs:
            frames += [{"type": "FunctionCallCancelFrame", **call} for call in run.calls.values()]
        frames += self._closed(runs)
        for answer in waiting if is_alone else ():
            frames += [self._start(answer.run, answer.agent), _INTERRUPTION]
        return frames

    def _failed(self, runs: list[Run], error: str) -> list[Fields]:
        frames: list[Fields] = []
        for call in (call for run in runs for call in run.calls.values()):
            failed = {"result": {"error": error}, "settled_as": "failed"}
            frames.append({"type": "FunctionCallResultFrame", **call, **failed})
        # Without the message of the error: it can contain secrets or text of the conversation.
        details = {"message": f"The run ended with {error}.", "code": error}
        error_frame: Fields = {"type": "ErrorFrame", **details}
        waiting = _waiting(runs)
        if self._answers_for(runs) or not waiting:
            frames.append(error_frame | {"fatal": self._answers_for(runs)})
        for answer in waiting:
            self._held += [self._start(answer.run, answer.agent), error_frame | {"fatal": True}]
        return [*frames, *self._closed(runs)]

    def _answers_for(self, runs: list[Run]) -> bool:
        return self._answer is not None and self._answer.run in runs

    def _closed(self, runs: list[Run]) -> list[Fields]:
        """Close these runs. Returns the frames that waited for the end of their answer."""
        for run in runs:
            run.calls.clear()
            run.announced.clear()
            run.waiting.clear()
        return self._close_answer() if self._answer is None or self._answers_for(runs) else []

    def _close_answer(self) -> list[Fields]:
        """Close the open answer. Returns the frames that waited for its end."""
        self._answer, held = None, self._held
        self._held = []
        return held

    def _run(self, scope: Any, context: Any) -> Run:
        """Returns the run of this context."""
        # Tools, and agents that are tools, have other contexts that share one usage object.
        run = self._runs.get(id(context.usage))
        if run is not None:
            self._runs.move_to_end(id(context.usage))
            return run
        run = self._runs[id(context.usage)] = Run(context.usage, scope)
        while len(self._runs) > MAX_RUNS:
            self._runs.popitem(last=False)
        return run

    def _start(self, run: Run, agent: Any) -> Fields:
        provider, model = model_of(agent)
        model_fields = {"provider": self._provider or provider, "model": self._model or model}
        known = {name: value for name, value in model_fields.items() if value is not None}
        return {"type": "LLMFullResponseStartFrame", **known, **_about(run, agent=agent.name)}

    def _noted(self, what: str, run: Run, **fields: Any) -> Fields:
        return {"type": f"openai-agents/{what}", "run": run.name, **fields}


def _about(run: Run, **fields: Any) -> Fields:
    return {"metadata": {"openai-agents": {"run": run.name, **fields}}}


def _waiting(runs: list[Run]) -> list[OpenAnswer]:
    return [answer for run in runs for answer in run.waiting.values()]


def _is_of_a_tool(context: Any) -> bool:
    return getattr(context, "tool_call_id", None) is not None


def _announced(run: Run, context: Any, tool: Any, kind: str) -> tuple[str | None, Any]:
    """Returns the id and the arguments of the next call of one of the SDK's own tools, if that call is known: a call
    that a person has to approve can start after later ones."""
    calls = run.announced.get(id(context), [])
    of_kind = [one for one in calls if one[0] == kind]
    if not of_kind or (len(of_kind) > 1 and getattr(tool, "needs_approval", False) is not False):
        return None, {}
    calls.remove(of_kind[0])
    _, id_, arguments = of_kind[0]
    return id_, arguments


def _key(context: Any, tool: Any) -> Any:
    # In an agent that is a tool, the context of the SDK's own tools has the id of the call of that agent.
    own = own_call_of(tool) is not None
    return (None if own else getattr(context, "tool_call_id", None)) or (id(context), id(tool))
