"""A conversation in a few words: short names for frames, and `play`, which folds them and keeps what came of each.

Frames are counted from 1. No frame here is a repetition unless a test says so, so the number of a frame is the
version that it got, and `run=3` means the run that the third frame asked for.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from frameledger import async_tool_messages, derived
from frameledger.context import LLMContext
from frameledger.effects import CallFunction, Cancel, Effect, RunInference
from frameledger.evolve import State, Step
from frameledger.evolve.changes import Change, Message, RunOpened, RunRequested
from frameledger.fold import Conversation, Folding
from frameledger.frames import (
    AnyFrame,
    BotStartedSpeakingFrame,
    BotStoppedSpeakingFrame,
    CancelFrame,
    EndFrame,
    ErrorFrame,
    Frame,
    FunctionCallCancelFrame,
    FunctionCallFromLLM,
    FunctionCallInProgressFrame,
    FunctionCallResultFrame,
    FunctionCallResultProperties,
    FunctionCallsStartedFrame,
    InterimTranscriptionFrame,
    InterruptionFrame,
    LLMAssistantPushAggregationFrame,
    LLMContextFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMMessageRewriteFrame,
    LLMMessagesAppendFrame,
    LLMMessagesUpdateFrame,
    LLMMirrorFrame,
    LLMRunFrame,
    LLMSetLimitsFrame,
    LLMSetToolsFrame,
    LLMTextFrame,
    LLMThoughtEndFrame,
    LLMThoughtStartFrame,
    LLMThoughtTextFrame,
    LLMUpdateSettingsFrame,
    TextFrame,
    TranscriptionFrame,
    UserStartedSpeakingFrame,
    UserStoppedSpeakingFrame,
    encode_frame,
)
from frameledger.ids import ContextId, Position, RunId, Version
from frameledger.react import react
from frameledger.record import decode

CONTEXT = ContextId("conversation")
Frames = Frame | Iterable["Frames"]


@dataclass(frozen=True)
class Play:
    """What came of some frames, one entry per frame in every list; a repetition has no step."""

    conversation: Conversation
    steps: list[Step | None]
    effects: list[tuple[Effect, ...]]

    @property
    def state(self) -> State:
        return self.conversation.state

    @property
    def context(self) -> LLMContext:
        return self.conversation.context

    @property
    def messages(self) -> list[Message]:
        """The whole context, as on the wire."""
        return list(self.conversation.messages)

    @property
    def texts(self) -> list[str]:
        """The whole context in short: `user: hi`, `assistant calls f(a)`, `tool a: IN_PROGRESS`, `thought: ...`."""
        return [_in_short(message) for message in self.conversation.messages]

    @property
    def positions(self) -> list[Position]:
        return [position for position, _ in self.conversation.rows]

    @property
    def outcomes(self) -> list[str | None]:
        return [step.outcome if step else None for step in self.steps]

    @property
    def reasons(self) -> list[str | None]:
        return [step.reason if step else None for step in self.steps]

    @property
    def became(self) -> str | None:
        """What the last frame became: `applied`, `unknown`, or the reason why it was ignored."""
        last = self.steps[-1]
        if last is None:
            return None
        assert (last.outcome == "ignored") == (last.reason is not None)
        return last.reason or last.outcome

    @property
    def changes(self) -> tuple[Change, ...]:
        """What the last frame did."""
        return self.steps[-1].changes

    @property
    def asked(self) -> list[int]:
        """The numbers of the frames that asked for an inference."""
        return self.frames_with(RunRequested)

    @property
    def opened(self) -> list[int]:
        """The numbers of the frames that opened a run, at once or a remembered one."""
        return self.frames_with(RunOpened)

    def frames_with(self, change: type) -> list[int]:
        """The numbers of the frames that did such a change; a frame that did several is there several times."""
        return [n for n, step in enumerate(self.steps, 1) for did in step.changes if isinstance(did, change)]


def effects_of(played: Play, frame: int = 0) -> list[str]:
    """What the frame of this number (the last one without) makes happen: `run 1`, `call a`, `stop a`, `stop run 1`."""
    asked_by = {run_id(version): version for version in range(len(played.steps) + 1)}
    said = []
    for effect in played.effects[frame - 1]:
        match effect:
            case RunInference():
                said.append(f"run {asked_by[effect.run_id]}")
            case CallFunction():
                said.append(f"call {effect.tool_call_id}")
            case Cancel():
                named = effect.tool_call_id or f"run {asked_by[effect.run_id]}"
                said.append(f"stop {named}")
    return said


def in_background(played: Play) -> list[tuple[str, str, str | None]]:
    """The messages about asynchronous calls, each as kind, call and result."""
    parsed = [async_tool_messages.parse_message(message) for message in played.messages]
    return [(one.kind, one.tool_call_id, one.result) for one in parsed if one is not None]


def play(*frames: Frames, onto: Play | None = None) -> Play:
    """Fold frames, given one by one or in lists, each as it comes off the log; `onto` goes on with what was played."""
    folding = Folding(onto.conversation if onto else Conversation.new(CONTEXT))
    steps, effects = (list(onto.steps), list(onto.effects)) if onto else ([], [])
    for frame in map(_off_the_log, flat(frames)):
        before = folding.state
        steps.append(folding.step(frame))
        effects.append(react(before, frame, folding.state) if steps[-1] else ())
    return Play(folding.conversation(), steps, effects)


def run_id(version: int) -> RunId:
    """The run that the frame at this version asked for."""
    return derived.run_id(CONTEXT, Version(version))


# What the user does.


def speak(**fields: Any) -> Frame:
    return UserStartedSpeakingFrame(**fields)


def stop(opened_version: int | None = None) -> Frame:
    return UserStoppedSpeakingFrame(opened_version=opened_version)


def hear(text: str, **fields: Any) -> Frame:
    return TranscriptionFrame(text=text, **fields)


def interim(text: str = "hm") -> Frame:
    return InterimTranscriptionFrame(text=text)


def interrupt(heard_text: str | None = None) -> Frame:
    return InterruptionFrame(heard_text=heard_text)


# What the bot does. `run` is the number of the frame that asked for it, or any run id.


def bot_speaks() -> Frame:
    return BotStartedSpeakingFrame()


def bot_stops(opened_version: int | None = None) -> Frame:
    return BotStoppedSpeakingFrame(opened_version=opened_version)


def start(run: int | str | None = None, attempt: int | None = None) -> Frame:
    return LLMFullResponseStartFrame(run_id=_run(run), attempt=attempt)


def tokens(*texts: str, run: int | str | None = None, attempt: int | None = None) -> list[Frame]:
    return [LLMTextFrame(text=text, run_id=_run(run), attempt=attempt) for text in texts]


def words(
    *texts: str, run: int | str | None = None, attempt: int | None = None, **fields: Any
) -> list[Frame]:
    """Plain chunks, which do not bring their own spaces."""
    return [TextFrame(text=text, run_id=_run(run), attempt=attempt, **fields) for text in texts]


def end(run: int | str | None = None, attempt: int | None = None, **fields: Any) -> Frame:
    return LLMFullResponseEndFrame(run_id=_run(run), attempt=attempt, **fields)


def push(run: int | str | None = None, attempt: int | None = None) -> Frame:
    return LLMAssistantPushAggregationFrame(run_id=_run(run), attempt=attempt)


def fail(run: int | str | None = None, attempt: int | None = None, *, fatal: bool = True) -> Frame:
    return ErrorFrame(run_id=_run(run), attempt=attempt, fatal=fatal, message="it failed")


def think(run: int | str | None = None, attempt: int | None = None, *, llm: str | None = "x") -> Frame:
    """A thought begins; one without an `llm` stays out of the context."""
    return LLMThoughtStartFrame(run_id=_run(run), attempt=attempt, llm=llm, append_to_context=llm is not None)


def thinking(*texts: str, run: int | str | None = None, attempt: int | None = None) -> list[Frame]:
    return [LLMThoughtTextFrame(text=text, run_id=_run(run), attempt=attempt) for text in texts]


def thought(signature: Any = None, run: int | str | None = None, attempt: int | None = None) -> Frame:
    """The thought ends."""
    return LLMThoughtEndFrame(signature=signature, run_id=_run(run), attempt=attempt)


def answer(*texts: str, run: int | str | None = None, attempt: int | None = None) -> list[Frame]:
    """A whole response."""
    return [start(run, attempt), *tokens(*texts, run=run, attempt=attempt), end(run, attempt)]


# What clients say about the context.


def append(*contents: str, run_llm: bool | None = None, **fields: Any) -> Frame:
    """The user's words, written by a client."""
    return LLMMessagesAppendFrame(messages=_users(contents), run_llm=run_llm, **fields)


def update(*contents: str, run_llm: bool | None = None, **fields: Any) -> Frame:
    return LLMMessagesUpdateFrame(messages=_users(contents), run_llm=run_llm, **fields)


def rewrite(position: int, content: str | None, **fields: Any) -> Frame:
    """The message there is the user's with these words from now on; None removes it."""
    message = None if content is None else {"role": "user", "content": content}
    return LLMMessageRewriteFrame(position=position, message=message, **fields)


def mirror(name: str | None, react: bool = True, **fields: Any) -> Frame:
    """Somebody of this name keeps the history, or nobody does any more."""
    return LLMMirrorFrame(mirror=name, react=react, **fields)


def context(*contents: str, run_llm: bool | None = None, react: bool = True, **parts: Any) -> Frame:
    return LLMContextFrame(context={"messages": _users(contents), **parts}, run_llm=run_llm, react=react)


def ask(**fields: Any) -> Frame:
    return LLMRunFrame(**fields)


def limits(**values: Any) -> Frame:
    return LLMSetLimitsFrame(**values)


def settings(**values: Any) -> Frame:
    return LLMUpdateSettingsFrame(settings=values)


def tools(*names: str) -> Frame:
    return LLMSetToolsFrame(
        tools=[{"type": "function", "function": {"name": name, "parameters": {}}} for name in names]
    )


def finish() -> Frame:
    """The conversation ends."""
    return EndFrame()


def break_off() -> Frame:
    return CancelFrame()


# Calls. A name alone is the call's id and its function's name too.


def announce(
    *calls: str | tuple[str, str], run: int | str | None = None, attempt: int | None = None, **fields: Any
) -> Frame:
    """Calls as ids, or as pairs of id and function."""
    named = [(call, call) if isinstance(call, str) else call for call in calls]
    return FunctionCallsStartedFrame(
        function_calls=[
            FunctionCallFromLLM(tool_call_id=call_id, function_name=function, arguments={})
            for call_id, function in named
        ],
        run_id=_run(run),
        attempt=attempt,
        **fields,
    )


def committed(
    *calls: str | tuple[str, str], run: int, attempt: int | None = None, **fields: Any
) -> list[Frame]:
    """A response of this run that only calls: three frames, start, announcement and end."""
    return [start(run, attempt), announce(*calls, run=run, attempt=attempt, **fields), end(run, attempt)]


def begin(call: str, *, sync: bool = True, attempt: int | None = None, **fields: Any) -> Frame:
    """A call starts; `attempt` is its `call_attempt`."""
    return FunctionCallInProgressFrame(
        **{"function_name": call, "tool_call_id": call, "arguments": {}}
        | {"cancel_on_interruption": sync, "call_attempt": attempt}
        | fields
    )


def result(
    call: str,
    value: Any,
    *,
    run_llm: bool | None = None,
    attempt: int | None = None,
    final: bool | None = None,
    says: bool | None = None,
    **fields: Any,
) -> Frame:
    """A result; `final` and `says` (its `run_llm`) are its properties, which it has only if one is given."""
    properties = None
    if final is not None or says is not None:
        properties = FunctionCallResultProperties(is_final=final is not False, run_llm=says)
    return FunctionCallResultFrame(
        function_name=call,
        tool_call_id=call,
        result=value,
        run_llm=run_llm,
        call_attempt=attempt,
        properties=properties,
        **fields,
    )


def cancel(
    call: str, *, run_llm: bool = False, attempt: int | None = None, opened_version: int | None = None
) -> Frame:
    return FunctionCallCancelFrame(
        function_name=call,
        tool_call_id=call,
        run_llm=run_llm,
        call_attempt=attempt,
        opened_version=opened_version,
    )


def _run(run: int | str | None) -> str | None:
    return run_id(run) if isinstance(run, int) else run


def _users(contents: Iterable[str]) -> list[dict[str, Any]]:
    return [{"role": "user", "content": content} for content in contents]


def flat(frames: Iterable[Frames]) -> Iterable[Frame]:
    """Frames one by one, that were given so or in lists."""
    for frame in frames:
        # A pydantic model iterates too, over its fields.
        if isinstance(frame, Frame):
            yield frame
        else:
            yield from flat(frame)


def _off_the_log(frame: Frame) -> AnyFrame:
    return decode(encode_frame(frame))


def _in_short(message: Message) -> str:
    if "llm" in message:
        return f"{message['message']['type']}: {message['message']['text']}"
    if "tool_calls" in message:
        made = ", ".join(f"{call['function']['name']}({call['id']})" for call in message["tool_calls"])
        return f"{message['role']} calls {made}"
    to = f" {message['tool_call_id']}" if "tool_call_id" in message else ""
    return f"{message['role']}{to}: {message['content']}"
