"""What is overdue, as data: the rows that the questions to Postgres answer with.

`version` is always that of the context's head when it was looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

CallStatus = Literal["announced", "dispatched", "running"]


@dataclass(frozen=True, slots=True)
class Run:
    """An open run that nobody works on, or that fell silent. `attempt` is 0 before its first start."""

    context_id: str
    version: int
    run_id: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Call:
    """A call that is open too long. `interrupted`: an interruption owes it a cancel, so its end asks for nothing.

    `safe` is whether it may run twice; false before it starts, when nobody knows.
    """

    context_id: str
    version: int
    requested_version: int
    tool_call_id: str
    function_name: str
    status: CallStatus
    safe: bool
    interrupted: bool


@dataclass(frozen=True, slots=True)
class WaitingCall:
    """A call whose own deadline for the person that it waits for has passed."""

    context_id: str
    version: int
    requested_version: int
    tool_call_id: str
    function_name: str
    interrupted: bool


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn of the user of which nothing was heard any more since `heard_version`.

    `waits`: it was stopped and its final words do not come; else its stop does not.
    """

    context_id: str
    version: int
    opened_version: int
    heard_version: int
    waits: bool


@dataclass(frozen=True, slots=True)
class Speech:
    """A speech of the bot, begun at `since_version`, whose stop does not come."""

    context_id: str
    version: int
    since_version: int


@dataclass(frozen=True, slots=True)
class Unstarted:
    """A dispatched call that nobody starts, to be claimed.

    `attempt` is that of the claim as it was seen, 0 for none: it is taken only if it still is.
    """

    context_id: str
    dispatched_version: int
    requested_version: int
    ordinal: int
    tool_call_id: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Held:
    """A call that this timekeeper has claimed, as it stands. `served`: a live worker lists its function or is a
    catch-all. `ours`: a timekeeper started it, so nobody runs anything. `claim` is the token of the claim."""

    effect_id: str
    context_id: str
    version: int
    requested_version: int
    tool_call_id: str
    function_name: str
    arguments: Any
    group_id: str | None
    call_attempt: int
    claim: str
    status: CallStatus
    ours: bool
    safe: bool
    interrupted: bool
    served: bool
