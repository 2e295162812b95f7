"""The simulated function worker: it starts a call at most once unless it is safe, and settles what it started.

`pay` has an effect that must not happen twice, and an interruption cancels it; `look_up` may run again; `search` runs
in the background and reports progress; `approve` waits for a person.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from tests.laws.simulation.actors import Steps, Worker
from tests.laws.simulation.tables import CallRow, Taken

from frameledger.effects import CallFunction, Effect
from frameledger.frames import (
    FunctionCallCancelFrame,
    FunctionCallInProgressFrame,
    FunctionCallResultFrame,
    FunctionCallResultProperties,
    Waiting,
)

DEADLINE = 15.0


@dataclass(frozen=True)
class Terms:
    """How a function was registered."""

    cancel_on_interruption: bool = True
    safe_to_retry: bool = False
    waits: bool = False


SERVED = {
    "pay": Terms(),
    "look_up": Terms(safe_to_retry=True),
    "search": Terms(cancel_on_interruption=False),
    "approve": Terms(cancel_on_interruption=False, waits=True),
}


class FunctionWorker(Worker):
    """Claim, in progress, (folded as applied,) run, result."""

    topic = "functions"
    served: ClassVar[Mapping[str, Terms]] = SERVED

    def _serves(self, effect: Effect) -> bool:
        return isinstance(effect, CallFunction) and effect.function_name in self.served

    def _perform(self, taken: Taken) -> Steps:
        world, effect = self._world, taken.effect
        assert isinstance(effect, CallFunction)
        attempt = taken.attempt
        terms = self.served.get(effect.function_name)
        row = world.call(effect)
        if row is not None and row.interrupted:
            # The call of a dead worker: if it is unsafe, it is unknown whether it had its effect.
            yield from self._settle_for_the_dead(taken, row)
            world.finish(self.name, taken)
            return
        started = FunctionCallInProgressFrame(
            id=f"started-{effect.id}-{attempt}-{taken.token}",
            function_name=effect.function_name,
            tool_call_id=effect.tool_call_id,
            arguments={},
            cancel_on_interruption=terms.cancel_on_interruption if terms else True,
            worker=self.name,
            call_attempt=attempt,
            claim=taken.token,
            safe_to_retry=terms.safe_to_retry if terms else False,
            timeout_secs=DEADLINE,
        )
        yield
        if terms is not None and terms.safe_to_retry:
            # The claim, or this second read, returns the state; the start is sent without waiting.
            if world.is_wanted(effect) and effect.id in world.claims:
                self._send(started)
                world.execute(self.name, effect, safe=True)
                yield from self._run(taken, terms, started)
        else:
            yield from self._publish(started)
            while started.id not in world.outcomes:
                yield
            # One read, and the function directly after it: no yield between here and `execute`.
            row = world.call(effect)
            if row is None or row.is_over:
                pass
            elif row.attempt > attempt:
                world.release(self.name, taken)
                return
            elif (row.worker, row.attempt, row.claim) != (self.name, attempt, taken.token):
                yield from self._settle_for_the_dead(taken, row)
            elif terms is None:
                yield from self._publish(self._result(taken, "not available", settled_as="failed"))
            elif self._may_start(row, taken) and self.may_publish():
                world.execute(self.name, effect, safe=False)
                yield from self._run(taken, terms, started)
        yield
        world.finish(self.name, taken)

    def _may_start(self, row: CallRow, taken: Taken) -> bool:
        started = row.status, row.worker, row.attempt, row.claim
        return started == ("running", self.name, taken.attempt, taken.token) and not row.interrupted

    def _run(self, taken: Taken, terms: Terms, started: FunctionCallInProgressFrame) -> Steps:
        rng, world, effect = self._world.rng, self._world, taken.effect
        until = world.now + DEADLINE
        hangs = rng.random() < 0.1
        said = 0
        while hangs or rng.random() < 0.8:
            yield
            if self.told_to_stop(effect.tool_call_id):
                yield from self._publish(self._cancel(taken, run_llm=False))
                return
            if world.now > until:
                yield from self._publish(self._cancel(taken, run_llm=True))
                return
            if not terms.cancel_on_interruption and said < 2 and rng.random() < 0.2:
                said += 1
                self._send(
                    self._result(
                        taken,
                        f"part {said}",
                        said=said,
                        properties=FunctionCallResultProperties(is_final=False),
                    )
                )
        if terms.waits:
            waiting = started.model_copy(
                update={
                    "id": f"waits-{started.id}",
                    "waiting": Waiting.model_validate({"for": "approval"}),
                }
            )
            yield from self._publish(waiting)
            return
        settled_as = "failed" if rng.random() < 0.1 else None
        yield from self._publish(self._result(taken, {"n": 1}, settled_as=settled_as))

    def _settle_for_the_dead(self, taken: Taken, row: CallRow) -> Steps:
        """Settle the call, because nobody else will: cancel it if it has no effect, otherwise report it as ambiguous,
        whichever worker started it."""
        if row.interrupted and row.safe:
            yield from self._publish(self._cancel(taken, run_llm=False, claim=None))
            return
        word = False if row.interrupted else None
        yield from self._publish(
            self._result(taken, {"error": "unknown"}, settled_as="ambiguous", run_llm=word, claim=None)
        )

    def _result(self, taken: Taken, value: object, *, said: int = 0, **more: object) -> object:
        effect = taken.effect
        return FunctionCallResultFrame(
            id=f"result-{effect.id}-{taken.attempt}-{taken.token}-{said}",
            function_name=effect.function_name,
            tool_call_id=effect.tool_call_id,
            result=value,
            **({"call_attempt": taken.attempt, "claim": taken.token} | more),
        )

    def _cancel(self, taken: Taken, **more: object) -> object:
        effect = taken.effect
        return FunctionCallCancelFrame(
            id=f"cancel-{effect.id}-{taken.attempt}-{taken.token}",
            function_name=effect.function_name,
            tool_call_id=effect.tool_call_id,
            **({"call_attempt": taken.attempt, "claim": taken.token} | more),
        )
