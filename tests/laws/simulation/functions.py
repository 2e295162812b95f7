"""The simulated function worker: it starts a call at most once unless it is safe, and settles what it started.

`pay` has an effect that must not happen twice, and an interruption cancels it; `look_up` may run again; `search` goes
on beside the conversation and says something in between; `approve` waits for a person.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from tests.laws.simulation.actors import Steps, Worker
from tests.laws.simulation.world import CallRow, Claim

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

    def _perform(self, claim: Claim) -> Steps:
        world, effect = self._world, claim.effect
        attempt = claim.attempt
        terms = self.served.get(effect.function_name)
        row = world.call(effect)
        if row.interrupted:
            # What a dead worker left: nobody knows whether an unsafe one has done what it does.
            yield from self._settle_for_the_dead(claim, attempt, row.safe)
            world.finish(self.name, claim)
            return
        name = f"{effect.id}-{attempt}"
        started = FunctionCallInProgressFrame(
            id=f"started-{name}",
            function_name=effect.function_name,
            tool_call_id=effect.tool_call_id,
            arguments={},
            cancel_on_interruption=terms.cancel_on_interruption if terms else True,
            worker=self.name,
            call_attempt=attempt,
            safe_to_retry=terms.safe_to_retry if terms else False,
            timeout_secs=DEADLINE,
        )
        yield
        if terms is not None and terms.safe_to_retry:
            # The claim, or this second look, is the read; the start is sent and not waited for.
            if world.is_wanted(effect) and claim.worker == self.name:
                self._send(started)
                world.execute(self.name, effect, safe=True)
                yield from self._run(claim, attempt, terms, started)
        else:
            yield from self._publish(started)
            while started.id not in world.outcomes:
                yield
            outcome, reason = world.outcomes[started.id]
            # One read, and the function right behind it: no yield between here and `execute`.
            if outcome == "ignored":
                if reason == "call_started" and not row.is_over:
                    yield from self._settle_for_the_dead(claim, attempt, safe=False)
            elif terms is None:
                yield from self._publish(self._result(claim, attempt, "not available", settled_as="failed"))
            elif self._may_start(row, attempt) and self.may_publish():
                world.execute(self.name, effect, safe=False)
                yield from self._run(claim, attempt, terms, started)
        yield
        world.finish(self.name, claim)

    def _may_start(self, row: CallRow, attempt: int) -> bool:
        mine = (row.status, row.worker, row.attempt) == ("running", self.name, attempt)
        return mine and not row.interrupted

    def _run(self, claim: Claim, attempt: int, terms: Terms, started: FunctionCallInProgressFrame) -> Steps:
        rng, world, effect = self._world.rng, self._world, claim.effect
        until = world.now + DEADLINE
        hangs = rng.random() < 0.1
        said = 0
        while hangs or rng.random() < 0.8:
            yield
            if self.told_to_stop(effect.tool_call_id):
                yield from self._publish(self._cancel(claim, attempt, run_llm=False))
                return
            if world.now > until:
                yield from self._publish(self._cancel(claim, attempt, run_llm=True))
                return
            if not terms.cancel_on_interruption and said < 2 and rng.random() < 0.2:
                said += 1
                self._send(
                    self._result(
                        claim,
                        attempt,
                        f"part {said}",
                        said=said,
                        properties=FunctionCallResultProperties(is_final=False),
                    )
                )
        if terms.waits:
            waiting = started.model_copy(
                update={
                    "id": f"waits-{effect.id}-{attempt}",
                    "waiting": Waiting.model_validate({"for": "approval"}),
                }
            )
            yield from self._publish(waiting)
            return
        settled_as = "failed" if rng.random() < 0.1 else None
        yield from self._publish(self._result(claim, attempt, {"n": 1}, settled_as=settled_as))

    def _settle_for_the_dead(self, claim: Claim, attempt: int, safe: bool) -> Steps:
        """Nobody else will: cancel what is harmless, call the rest ambiguous."""
        interrupted = self._world.call(claim.effect).interrupted
        if interrupted and safe:
            yield from self._publish(self._cancel(claim, attempt, run_llm=False))
            return
        word = False if interrupted else None
        yield from self._publish(
            self._result(claim, attempt, {"error": "unknown"}, settled_as="ambiguous", run_llm=word)
        )

    def _result(self, claim: Claim, attempt: int, value: object, *, said: int = 0, **more: object) -> object:
        effect = claim.effect
        return FunctionCallResultFrame(
            id=f"result-{effect.id}-{attempt}-{said}",
            function_name=effect.function_name,
            tool_call_id=effect.tool_call_id,
            result=value,
            call_attempt=attempt,
            **more,
        )

    def _cancel(self, claim: Claim, attempt: int, *, run_llm: bool) -> object:
        effect = claim.effect
        return FunctionCallCancelFrame(
            id=f"cancel-{effect.id}-{attempt}",
            function_name=effect.function_name,
            tool_call_id=effect.tool_call_id,
            call_attempt=attempt,
            run_llm=run_llm,
        )
