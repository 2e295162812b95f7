"""The rows of the simulated tables, and the effects that request runs and calls."""

from __future__ import annotations

from dataclasses import dataclass

from tests.laws.simulation.lives import CONTEXT

from frameledger.effects import CallFunction, RunInference
from frameledger.evolve.changes import CallKey
from frameledger.ids import ContextId, RunId, ToolCallId, Version


@dataclass
class RunRow:
    """A row of `runs`."""

    run_id: str
    requested_version: int
    opened_version: int | None = None
    opened_at: float = 0.0
    attempt: int = 0
    claim: str | None = None
    status: str = "requested"
    last_frame_at: float = 0.0


@dataclass
class CallRow:
    """A row of `tool_calls`."""

    key: CallKey
    tool_call_id: str
    function_name: str
    requested_at: float
    announced_by: tuple[str | None, int] = (None, 0)
    status: str = "announced"
    dispatched_version: int | None = None
    dispatched_at: float = 0.0
    worker: str | None = None
    attempt: int = 0
    claim: str | None = None
    started_at: float = 0.0
    safe: bool = False
    interrupted: bool = False
    waiting_since: float = 0.0
    by_client: bool = False
    """No worker starts it: it has been waiting since its dispatch."""

    @property
    def is_over(self) -> bool:
        return self.status in ("done", "failed", "cancelled", "forgotten", "ambiguous")


@dataclass
class Claim:
    """A row of `claims`: the worker that has an effect's work, the attempt, and the claim's token."""

    effect: RunInference | CallFunction
    worker: str
    attempt: int
    token: str
    taken_at: float
    released: bool = False
    finished_at: float | None = None


@dataclass(frozen=True)
class Taken:
    """The result of the statement that claimed work. The worker never reads the claim again."""

    effect: RunInference | CallFunction
    attempt: int
    token: str
    started: bool = False
    """For a call: another worker had started it."""


@dataclass
class Life:
    """A row of `workers`: one life of one process, by the database's clock."""

    connected_at: float
    heartbeat_at: float
    stopped: bool = False


def effect_of_run(run: RunRow) -> RunInference:
    """Returns the effect that requested a run. Every process derives the same id."""
    return RunInference.of(ContextId(CONTEXT), Version(run.opened_version or 0), RunId(run.run_id))


def effect_of(call: CallRow) -> CallFunction:
    """Returns the effect that dispatched a call. Every process derives the same id."""
    return CallFunction.of(
        ContextId(CONTEXT),
        Version(call.dispatched_version or 0),
        call.key.requested_version,
        call.key.ordinal,
        ToolCallId(call.tool_call_id),
        call.function_name,
        None,
    )


def target(effect: RunInference | CallFunction) -> str:
    """Returns the id that a cancellation of this effect's work names."""
    return str(effect.run_id if isinstance(effect, RunInference) else effect.tool_call_id)


def name_of(effect: RunInference | CallFunction) -> str:
    return f"run {effect.run_id[:4]}" if isinstance(effect, RunInference) else f"call {effect.tool_call_id}"
