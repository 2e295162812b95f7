"""Frames of function calls: announced, in progress, settled by a result or by a cancel."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field
from pydantic.json_schema import SkipJsonSchema

from frameledger.frames.base import (
    AttemptNumber,
    ClaimToken,
    ControlFrame,
    DataFrame,
    Id,
    NestedId,
    OfRun,
    SystemFrame,
    UninterruptibleFrame,
    Value,
    VersionNumber,
    in_memory_only,
)


class FunctionCallFromLLM(Value):
    """One call that a model requested. Not a frame: it is part of `FunctionCallsStartedFrame`."""

    id_fields: ClassVar[tuple[str, ...]] = ("tool_call_id",)

    function_name: str
    """The function to call."""

    tool_call_id: NestedId
    """The provider's id of the call. May be used again once the call has settled."""

    arguments: Any
    """An object, or JSON text that is kept unchanged."""

    builtin: bool = False
    """True for a built-in call that the service serves itself, such as one that cancels another call."""

    context: Annotated[SkipJsonSchema[Any], BeforeValidator(in_memory_only)] = Field(
        default=None, exclude=True
    )
    """The context in which the call was made. In memory only, never on the wire."""


class FunctionCallsStartedFrame(SystemFrame, OfRun):
    """Announces the calls of a batch before any of them starts.

    Says: the model requested these calls.
    Published by: inference services, after the text of the response and before its end.
    Effect: registers the calls; the end of the response writes the text and dispatches them. Calls without a run id are
    registered and never dispatched: the program that ran the model runs them.
    """

    type: Literal["FunctionCallsStartedFrame"] = "FunctionCallsStartedFrame"
    id_fields: ClassVar[tuple[str, ...]] = ("id", "mirror", "run_id", "group_id")

    function_calls: Annotated[tuple[FunctionCallFromLLM, ...], Field(strict=False, fail_fast=True)]
    """The calls, in the order in which they start. An empty list changes nothing."""

    group_id: Id | None = None
    """A name for the group, shared with calls of other batches that are awaited together."""

    run_in_parallel: bool = True
    """False starts each call only when the previous one in this context has settled or waits for a person."""

    group_parallel_tools: bool = True
    """False makes each call a group of its own, so that each result requests a run."""


class Waiting(Value):
    """What a call in progress waits for."""

    for_: str = Field(validation_alias="for", serialization_alias="for")
    """The person or thing that the call waits for, such as a person's approval. `for_` in Python, `for` on the wire."""

    deadline: str | None = None
    """The end of the wait, as the worker wrote it."""


class FunctionCallInProgressFrame(ControlFrame, UninterruptibleFrame):
    """A call has started.

    Says: this call is being worked on, and on what terms.
    Published by: function-call services, before the handler starts; again, by the same attempt, when the
    call waits for a person.
    Effect: appends the assistant message with the call and, in the same step, its tool message. A later
    start of the same call is ignored, unless the first one said `safe_to_retry` and this is a higher
    attempt, or the same one under another claim; one with `waiting` changes no message and lets the next
    call of a sequence start. Where several programs have the function, each names the call that it means by
    `opened_version`: then it is made once.
    """

    said_by = "function"

    type: Literal["FunctionCallInProgressFrame"] = "FunctionCallInProgressFrame"
    id_fields: ClassVar[tuple[str, ...]] = ("id", "mirror", "tool_call_id", "group_id", "worker")
    # The function that registers a tool has another default, so readers should not have to know either.
    always_written: ClassVar[frozenset[str]] = frozenset({"cancel_on_interruption"})

    function_name: str
    """The called function."""

    tool_call_id: Id
    """The call."""

    arguments: Any
    """An object, or JSON text that is kept unchanged."""

    cancel_on_interruption: bool = False
    """True makes the call synchronous: its result replaces its tool message, and an interruption cancels it. False
    makes it asynchronous: the conversation continues and results are appended as developer messages."""

    group_id: Id | None = None
    """The group of the call, if it has one with a name."""

    worker: Id | None = None
    """The process that runs the handler."""

    call_attempt: AttemptNumber | None = None
    """The attempt of the call, assigned with its claim. Without one, the call need not have been announced."""

    claim: ClaimToken | None = None
    """The claim under which the worker starts the call."""

    safe_to_retry: bool = False
    """True if another worker may run the handler again."""

    timeout_secs: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """The number of seconds that the handler may take."""

    waiting: Waiting | None = None
    """Set while the call waits for a person."""

    opened_version: VersionNumber | None = None
    """The version that announced the call which this starts. Ignored once that call has ended. Without one, a start
    after the end of a call is a new call."""


class FunctionCallResultProperties(Value):
    """How a result is handled."""

    run_llm: bool | None = None
    """Whether to run after this result; takes precedence over the frame's `run_llm` and never waits for the group."""

    is_final: bool = True
    """False for an intermediate result, which only an asynchronous call may have: it settles nothing."""

    on_context_updated: Annotated[
        SkipJsonSchema[Callable[[], Awaitable[None]] | None], BeforeValidator(in_memory_only)
    ] = Field(default=None, exclude=True)
    """Awaited by the service that owns the handler, once the result is folded as applied. In memory only."""


class FunctionCallResultFrame(DataFrame, UninterruptibleFrame):
    """A call has a result.

    Says: this is what the function returned.
    Published by: function-call services, or any program that ran the call.
    Effect: settles the call: a synchronous result takes the place of the call's tool message, an
    asynchronous one is appended as a developer message. Requests a run when nothing of its group is
    pending, or as `run_llm` says. One that resolves an ambiguous call is appended as a developer message
    and requests a run at once.
    """

    said_by = "function"

    type: Literal["FunctionCallResultFrame"] = "FunctionCallResultFrame"
    id_fields: ClassVar[tuple[str, ...]] = ("id", "mirror", "tool_call_id")

    function_name: str
    """The function that was called. No rule reads it."""

    tool_call_id: Id
    """The call."""

    arguments: Any = None
    """The arguments of the call, repeated. Those of the call itself count."""

    result: Any
    """Any JSON. Null means that there is no result; `0`, `false`, `""`, `[]` and `{}` are results. A frame without this
    field is invalid."""

    run_llm: bool | None = None
    """Whether to run after this result. Null: when nothing is pending that it waits for."""

    properties: FunctionCallResultProperties | None = None
    """More about the result."""

    call_attempt: AttemptNumber | None = None
    """The attempt of the call that this belongs to. Without one it counts for the latest."""

    claim: ClaimToken | None = None
    """The claim under which the worker publishes. Without one, only the attempt counts."""

    settled_as: Literal["done", "failed", "ambiguous", "resolved"] | None = None
    """How the call ended; null is `done`. `failed`: the function did not do what was asked, and the result
    says so. `ambiguous`: it began, and it is unknown whether it happened. `resolved`: a person's decision about a
    call that was settled as ambiguous; it is accepted once."""

    opened_version: VersionNumber | None = None
    """The version that opened the call which this settles or resolves. Ignored once that call has ended."""


class FunctionCallCancelFrame(SystemFrame):
    """A call is cancelled.

    Says: stop this call; it will have no result.
    Published by: the worker that ran it, clients, and the timekeeper for a call past its deadline.
    Effect: settles the call: the tool message of a synchronous call becomes `CANCELLED`, an asynchronous call gets a
    final message with that result; a call that has not started writes nothing. Workers are told to stop.
    """

    said_by = "function"
    carries_json = False
    id_fields: ClassVar[tuple[str, ...]] = ("id", "mirror", "tool_call_id")

    type: Literal["FunctionCallCancelFrame"] = "FunctionCallCancelFrame"

    function_name: str
    """The function that was called. No rule reads it."""

    tool_call_id: Id
    """The call."""

    run_llm: bool = False
    """True requests a run as a result does, once nothing that it waits for is pending."""

    call_attempt: AttemptNumber | None = None
    """The attempt of the call that this belongs to. Without one it counts for the latest."""

    claim: ClaimToken | None = None
    """The claim under which the worker publishes. Without one, only the attempt counts."""

    opened_version: VersionNumber | None = None
    """The version that opened the call which this settles. Ignored once that call has ended."""


CallFrames = (
    FunctionCallsStartedFrame
    | FunctionCallInProgressFrame
    | FunctionCallResultFrame
    | FunctionCallCancelFrame
)
