"""The simulated timekeeper: sweeps the tables and publishes frames that settle overdue work. Any number may run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

from tests.laws.simulation.actors import Steps
from tests.laws.simulation.functions import DEADLINE, FunctionWorker, Terms
from tests.laws.simulation.tables import CallRow, Claim, RunRow, Taken, effect_of

from frameledger.frames import (
    BotStoppedSpeakingFrame,
    ErrorFrame,
    Frame,
    FunctionCallCancelFrame,
    FunctionCallResultFrame,
    UserStoppedSpeakingFrame,
)
from frameledger.ids import RunId

SILENT = 20.0
GRACE = 10.0
NOT_STARTED = 20.0
SPEECH = 12.0
A_PERSON_HAS = 40.0


class Timekeeper(FunctionWorker):
    """Enforces timeouts. It is also a worker, so that it can settle a call that nobody starts."""

    served: ClassVar[Mapping[str, Terms]] = {}

    def _take(self) -> Steps:
        world = self._world
        while True:
            yield
            for frame in list(self._overdue()):
                yield from self._publish(frame)
            yield
            if self._jobs:
                continue
            taken = world.take_over(self.name, self._takes_over)
            if taken is None:
                call = next((one for one in world.calls.values() if self._nobody_starts(one)), None)
                yield
                taken = world.claim(self.name, effect_of(call)) if call is not None else None
            self._took(taken)
            yield

    def _perform(self, taken: Taken) -> Steps:
        row = self._world.call(taken.effect)
        if row is not None and row.status == "running" and is_a_timekeeper(row.worker):
            # The start of a dead timekeeper: nothing runs, so the result can be published without another start.
            frame = self._result(taken, "not available", settled_as="failed", claim=None)
            yield from self._publish(frame)
            self._world.finish(self.name, taken)
            return
        yield from super()._perform(taken)

    def _takes_over(self, claim: Claim) -> bool:
        return is_a_timekeeper(claim.worker)

    def _overdue(self) -> Iterator[Frame]:
        """Yields frames that name what they settle. Their ids contain the version that was read."""
        world, state = self._world, self._world.conversation.state
        now, version = world.now, int(state.version)
        for run in world.runs.values():
            if run.status == "open" and now - run.last_frame_at > SILENT:
                yield _run_is_silent(run, version)
        for call in world.calls.values():
            if self._is_overdue(call):
                yield _past_its_deadline(call, version)
            elif call.status == "waiting" and now - call.waiting_since > A_PERSON_HAS:
                yield _cancelled(call, version)
        quiet = now - world.last_at > SPEECH
        if state.turn is not None and quiet:
            opened = state.turn.opened_version
            yield UserStoppedSpeakingFrame(id=f"stop-{opened}-{version}", opened_version=opened)
        if state.speech.bot_since is not None and quiet:
            since = state.speech.bot_since
            yield BotStoppedSpeakingFrame(id=f"bot-{since}-{version}", opened_version=since)

    def _is_overdue(self, call: CallRow) -> bool:
        if call.is_over:
            return False
        if call.status == "running" and self._world.now - call.requested_at > DEADLINE + GRACE:
            return True
        return call.interrupted and not (call.worker is not None and self._world.is_alive(call.worker))

    def _nobody_starts(self, call: CallRow) -> bool:
        return call.status == "dispatched" and self._world.now - call.dispatched_at > NOT_STARTED


def is_a_timekeeper(worker: str | None) -> bool:
    return worker is not None and worker.startswith("timekeeper")


def _run_is_silent(run: RunRow, version: int) -> Frame:
    return ErrorFrame(
        id=f"silent-{run.run_id}-{version}", fatal=True, run_id=RunId(run.run_id), message="nobody answers"
    )


def _past_its_deadline(call: CallRow, version: int) -> Frame:
    """Returns the frame that settles a call: a safe one is cancelled, an unsafe one is ambiguous."""
    if call.safe:
        return _cancelled(call, version)
    return FunctionCallResultFrame(
        id=f"ambiguous-{call.tool_call_id}-{call.key.requested_version}-{version}",
        function_name=call.function_name,
        tool_call_id=call.tool_call_id,
        result={"error": "unknown"},
        settled_as="ambiguous",
        run_llm=False if call.interrupted else None,
    )


def _cancelled(call: CallRow, version: int) -> Frame:
    return FunctionCallCancelFrame(
        id=f"cancelled-{call.tool_call_id}-{call.key.requested_version}-{version}",
        function_name=call.function_name,
        tool_call_id=call.tool_call_id,
        opened_version=call.key.requested_version,
        run_llm=not call.interrupted,
    )
