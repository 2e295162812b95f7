"""The changes of a step, as data: enough for a store to write the difference and never a whole list.

Every change happens at the version of its step. A position is that of the message within the context's current era.
Stored names never change, even when a class does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from frameledger.ids import Attempt, Era, GroupId, Position, RunId, ToolCallId, Version
from frameledger.values import value

Message = Mapping[str, Any]
"""A message in wire form: the OpenAI chat shape, or `{"llm": ..., "message": ...}` for a provider's own."""

SettingName = Literal[
    "tools", "tool_choice", "settings", "prompt_caching", "skip_tts", "recording", "ended", "limits", "mirror"
]
RunEnd = Literal["ended", "failed", "interrupted", "replaced", "context_ended"]
CallEnd = Literal["done", "failed", "ambiguous", "cancelled", "forgotten"]
"""`ambiguous`: it is unknown whether it happened, until a person resolves it."""


@value
class MessageAppended:
    """A message got a new position; `run_id` is the run that generated it, if any."""

    position: Position
    message: Message
    run_id: RunId | None = None


@value
class MessageReplaced:
    """The message at a position was replaced: a result came, only part of a text was heard, or a client rewrote it."""

    position: Position
    message: Message


@value
class MessageEnded:
    """The message at a position is no longer part of the context."""

    position: Position


@value
class EraBegan:
    """The whole history was replaced: no earlier message is part of it, and positions start again at 1."""

    era: Era


@value
class ContextErased:
    """Nothing from before this change is kept: no message, no setting, no run, no call, no frame. The next life
    continues from this version."""

    version: Version


@value
class SettingChanged:
    """One of the context's request parameters has a new value (JSON)."""

    name: SettingName
    value: Any


@value
class RunRequested:
    """The frame requested an inference, which will be this run; `first` if no earlier frame requested the same run."""

    run_id: RunId
    first: bool = True


@value
class RunOpened:
    """The run reads the context as it is at this version; its inference is due."""

    run_id: RunId


@value
class RunStarted:
    """An attempt of the run began to answer. Attempt 0 is a response that names no run and answers this one."""

    run_id: RunId
    attempt: Attempt
    claim: str | None = None


@value
class RunClosed:
    """Nothing more of this run can reach the context."""

    run_id: RunId
    end: RunEnd


@value
class CallKey:
    """The identity of a call within its context: the version that requested it and its place there."""

    requested_version: Version
    ordinal: int


@value
class CallAnnounced:
    """A call was announced, by a run or without one."""

    key: CallKey
    tool_call_id: ToolCallId
    function_name: str
    arguments: Any
    run_id: RunId | None
    group_id: GroupId | None
    builtin: bool = False


@value
class CallDispatched:
    """The call was committed by the end of its run, and dispatched: a worker may start it."""

    key: CallKey
    tool_call_id: ToolCallId


@value
class CallStarted:
    """A call runs; `again` if a later attempt takes it over. A call that was not announced is created here.

    A call keeps the options of its first start (`synchronous`, `safe_to_retry`, `timeout_secs`): those of a later start
    are ignored, and `timeout_secs` is None then.
    """

    key: CallKey
    tool_call_id: ToolCallId
    function_name: str
    arguments: Any
    group_id: GroupId | None
    call_attempt: Attempt | None
    worker: str | None
    synchronous: bool
    safe_to_retry: bool = False
    timeout_secs: float | None = None
    again: bool = False
    claim: str | None = None


@value
class CallWaiting:
    """The running call now waits for a person: for whom or what, and until when, as its worker wrote it."""

    key: CallKey
    tool_call_id: ToolCallId
    for_: str
    deadline: str | None = None


@value
class CallInterrupted:
    """The worker of the running call has to cancel it, and may still report what it has done."""

    key: CallKey
    tool_call_id: ToolCallId


@value
class CallProgressed:
    """An asynchronous call had an intermediate result."""

    key: CallKey
    tool_call_id: ToolCallId
    result: Any


@value
class CallSettled:
    """The call has ended; a new call may use its id. `result` is None without a result."""

    key: CallKey
    tool_call_id: ToolCallId
    end: CallEnd
    result: Any = None


@value
class CallResolved:
    """A person reported the outcome of an ambiguous call. `result` is None for no result."""

    key: CallKey
    tool_call_id: ToolCallId
    result: Any = None


Change = (
    MessageAppended
    | MessageReplaced
    | MessageEnded
    | EraBegan
    | ContextErased
    | SettingChanged
    | RunRequested
    | RunOpened
    | RunStarted
    | RunClosed
    | CallAnnounced
    | CallDispatched
    | CallStarted
    | CallWaiting
    | CallInterrupted
    | CallProgressed
    | CallSettled
    | CallResolved
)
