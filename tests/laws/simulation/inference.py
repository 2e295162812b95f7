"""The simulated inference worker: reads the effect of a run and answers as a model might."""

from __future__ import annotations

from collections.abc import Generator
from typing import ClassVar

from tests.laws.simulation.actors import Steps, Worker
from tests.laws.simulation.tables import Taken

from frameledger.effects import Effect, RunInference
from frameledger.frames import (
    ErrorFrame,
    FunctionCallFromLLM,
    FunctionCallsStartedFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
)

ATTEMPTS = 3
CALLS_OF_A_CONVERSATION = 8
FUNCTIONS = ("pay", "pay", "look_up", "search", "approve", "nobody_serves_this")


class InferenceWorker(Worker):
    """An answer: start, words, perhaps an announcement of calls, end. Its connection may be lost at any step."""

    topic = "inference"
    most_calls = CALLS_OF_A_CONVERSATION
    functions: ClassVar[tuple[str, ...]] = FUNCTIONS

    def _serves(self, effect: Effect) -> bool:
        return isinstance(effect, RunInference)

    def _perform(self, taken: Taken) -> Steps:
        world, effect = self._world, taken.effect
        assert isinstance(effect, RunInference)
        attempt: int | None = taken.attempt
        while attempt is not None and attempt <= ATTEMPTS:
            over = yield from self._answer(effect.run_id, attempt, taken.token)
            if over:
                yield
                world.finish(self.name, taken)
                return
            yield
            attempt = world.next_attempt(self.name, taken, attempt)
        if attempt is None:
            world.release(self.name, taken)
            return
        yield
        yield from self._publish(
            ErrorFrame(
                id=f"gave-up-{effect.id}-{attempt}-{taken.token}",
                fatal=True,
                run_id=effect.run_id,
                attempt=attempt,
                claim=taken.token,
                message="three attempts failed",
            )
        )
        world.finish(self.name, taken)

    def _answer(self, run_id: str, attempt: int, token: str) -> Generator[None, None, bool]:
        """Make one attempt. Returns False if its connection was lost, so that another attempt has to begin."""
        rng, of = self._world.rng, {"run_id": run_id, "attempt": attempt, "claim": token}
        name = f"{run_id}-{attempt}-{token}"
        yield
        if self.told_to_stop(run_id):
            return True
        self._send(LLMFullResponseStartFrame(id=f"start-{name}", **of))
        hangs = rng.random() < 0.04
        for _ in range(rng.randint(0, 4)):
            yield
            while hangs and not self.told_to_stop(run_id):
                yield
            if self.told_to_stop(run_id):
                return True
            if rng.random() < 0.05:
                return False
            if rng.random() < 0.03:
                self._send(ErrorFrame(message="the model failed", **of))
                yield from self._publish(
                    LLMFullResponseEndFrame(id=f"end-{name}", finish_reason="error", **of)
                )
                return True
            self._send(LLMTextFrame(text=f"{self._world.word()} ", **of))
        yield
        calls = self._calls(f"{run_id[:4]}-{attempt}-{token}")
        if calls:
            self._send(
                FunctionCallsStartedFrame(
                    id=f"calls-{name}",
                    function_calls=calls,
                    run_in_parallel=rng.random() < 0.7,
                    group_parallel_tools=rng.random() < 0.8,
                    **of,
                )
            )
            yield
            if rng.random() < 0.1:
                return False
        if self.told_to_stop(run_id):
            return True
        yield from self._publish(LLMFullResponseEndFrame(id=f"end-{name}", finish_reason="stop", **of))
        return True

    def _calls(self, name: str) -> tuple[FunctionCallFromLLM, ...]:
        rng = self._world.rng
        if rng.random() < 0.5 or len(self._world.calls) >= self.most_calls:
            return ()
        return tuple(
            FunctionCallFromLLM(
                function_name=rng.choice(self.functions),
                tool_call_id=f"call-{name}-{n}",
                arguments={},
            )
            for n in range(rng.randint(1, 3))
        )
