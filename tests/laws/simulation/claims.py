"""The statements of workers: which workers are alive, which of them has the work of an effect, and which may take it
over. Each is a transaction and takes effect at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from random import Random

from tests.laws.simulation.tables import (
    CallRow,
    Claim,
    Life,
    RunRow,
    Taken,
    effect_of,
    effect_of_run,
    name_of,
    target,
)

from frameledger.effects import CallFunction, RunInference
from frameledger.evolve.changes import CallKey

LEASE = 5.0
MISSED_AFTER = 2.0


class LeaseLostError(Exception):
    """A worker could not renew its lease. It must not publish any more, and starts again as another worker."""


@dataclass
class Claims:
    """The tables that workers write, `lives` and `claims`, and those of the projector that their statements read."""

    rng: Random
    lossy: float = 0.3
    now: float = 0.0
    runs: dict[str, RunRow] = field(default_factory=dict)
    calls: dict[CallKey, CallRow] = field(default_factory=dict)
    lives: dict[str, Life] = field(default_factory=dict)
    claims: dict[str, Claim] = field(default_factory=dict)
    listeners: dict[str, set[str]] = field(default_factory=dict)
    """By worker: the ids of the runs and calls that it was asked to stop."""

    trace: list[str] = field(default_factory=list)
    _tokens: int = 0

    def say(self, who: str, what: str) -> None:
        self.trace.append(f"{self.now:8.2f}  {who:14} {what}")

    def register(self, worker: str) -> None:
        self.lives[worker] = Life(self.now, self.now)
        self.listeners[worker] = set()

    def is_alive(self, worker: str) -> bool:
        life = self.lives.get(worker)
        return life is not None and not life.stopped and self.now - life.heartbeat_at < LEASE

    def heartbeat(self, worker: str, held: Mapping[str, str]) -> tuple[set[str], set[str]] | None:
        """Renew a worker's lease. Returns which of its runs and calls to stop, and which of its claims, by token, are
        lost; None if it is dead by the database's clock."""
        if not self.is_alive(worker):
            return None
        self.lives[worker].heartbeat_at = self.now
        over, lost = set(), set()
        for of_effect, token in held.items():
            claim = self.claims.get(of_effect)
            if claim is None or not self._is(claim, worker, token) or self._started_by_another(claim):
                lost.add(token)
            elif not self.is_wanted(claim.effect):
                over.add(target(claim.effect))
        return over, lost

    def reconnected(self, worker: str, held: Mapping[str, str]) -> None:
        """Release the claims that the worker does not know, after it had no connection."""
        if worker in self.lives:
            self.lives[worker].connected_at = self.now
            self.give_back_unknown(worker, held, older_than=0.0)

    def give_back_unknown(self, worker: str, held: Mapping[str, str], older_than: float) -> None:
        for claim in self.claims.values():
            known = held.get(claim.effect.id) == claim.token
            if claim.worker == worker and claim.finished_at is None and not known:
                claim.released |= self.now - claim.taken_at >= older_than

    def is_wanted(self, effect: RunInference | CallFunction) -> bool:
        """Whether the run or the call is still open without a request to stop it."""
        work = self.work_of(effect)
        if isinstance(work, RunRow):
            return work.status == "open"
        return work is not None and not work.is_over and not work.interrupted

    def call(self, effect: CallFunction) -> CallRow | None:
        return self.calls.get(CallKey(effect.requested_version, effect.ordinal))

    def work_of(self, effect: RunInference | CallFunction) -> RunRow | CallRow | None:
        return self.runs.get(effect.run_id) if isinstance(effect, RunInference) else self.call(effect)

    def claim(self, worker: str, effect: RunInference | CallFunction) -> Taken | None:
        """Claim an effect that is unclaimed, or whose claim ended without a result, if its run or call is still
        open."""
        work, had = self.work_of(effect), self.claims.get(effect.id)
        if work is None or not self.is_alive(worker) or not self._is_open(work):
            return None
        if had is not None and not self._came_to_nothing(had):
            return None
        if isinstance(work, CallRow) and work.status == "running":
            its_own_or_new = not work.attempt or self.now - work.started_at < LEASE
            if its_own_or_new:
                return None
        return self._take(worker, effect, work, had)

    def missed(self) -> Iterator[RunInference | CallFunction]:
        """Returns the effects of runs and calls that have been open for a while and are unclaimed, or whose claim ended
        without a result."""
        before = self.now - MISSED_AFTER
        runs = (run for run in self.runs.values() if run.status == "open" and run.opened_at < before)
        calls = (
            call
            for call in self.calls.values()
            if call.status in ("dispatched", "running")
            and call.dispatched_version is not None
            and call.dispatched_at < before
        )
        found: list[RunInference | CallFunction] = [*map(effect_of_run, runs), *map(effect_of, calls)]
        for effect in found:
            if effect.id not in self.claims or self._came_to_nothing(self.claims[effect.id]):
                yield effect

    def take_over(self, worker: str, wanted: Callable[[Claim], bool]) -> Taken | None:
        """Claim released work, or the work of a dead worker, with the next attempt; the latter only after being
        connected for a whole lease."""
        if not self.is_alive(worker):
            return None
        may_judge = self.now - self.lives[worker].connected_at >= LEASE
        for claim in self.claims.values():
            is_free = claim.released or (may_judge and not self.is_alive(claim.worker))
            if claim.finished_at is not None or not is_free or not wanted(claim):
                continue
            work = self.work_of(claim.effect)
            if work is None or not self._is_open(work):
                claim.finished_at = self.now
                continue
            return self._take(worker, claim.effect, work, claim)
        return None

    def next_attempt(self, worker: str, taken: Taken, attempt: int) -> int | None:
        """Keep a claim with the next attempt. Returns None if another worker has it by now."""
        claim = self.claims.get(taken.effect.id)
        if claim is None or not self._is(claim, worker, taken.token) or claim.attempt != attempt:
            return None
        work = self.work_of(claim.effect)
        claim.attempt = max(attempt, work.attempt if work is not None else 0) + 1
        return claim.attempt

    def finish(self, worker: str, taken: Taken) -> None:
        claim = self.claims.get(taken.effect.id)
        if claim is not None and (claim.worker, claim.token) == (worker, taken.token):
            claim.finished_at = self.now if claim.finished_at is None else claim.finished_at

    def release(self, worker: str, taken: Taken) -> None:
        claim = self.claims.get(taken.effect.id)
        if claim is not None and self._is(claim, worker, taken.token):
            claim.released = True

    def _take(
        self, worker: str, effect: RunInference | CallFunction, work: RunRow | CallRow, had: Claim | None
    ) -> Taken:
        attempt = max(work.attempt, had.attempt if had is not None else 0) + 1
        self._tokens += 1
        token = f"t{self._tokens}"
        self.claims[effect.id] = Claim(effect, worker, attempt, token, self.now)
        self.say(worker, f"takes {name_of(effect)}, attempt {attempt}, {token}")
        return Taken(effect, attempt, token, started=work.status == "running")

    def _is(self, claim: Claim, worker: str, token: str) -> bool:
        mine = claim.worker == worker and claim.token == token
        return mine and claim.finished_at is None and not claim.released

    def _is_open(self, work: RunRow | CallRow) -> bool:
        return work.status in (("open",) if isinstance(work, RunRow) else ("dispatched", "running"))

    def _started_by_another(self, claim: Claim) -> bool:
        work = self.work_of(claim.effect)
        if work is None or work.claim is None or not (self._is_open(work) or work.status == "waiting"):
            return False
        return work.attempt >= claim.attempt and work.claim != claim.token

    def _came_to_nothing(self, claim: Claim) -> bool:
        if claim.finished_at is None or self.now - claim.finished_at < LEASE:
            return False
        work = self.work_of(claim.effect)
        if isinstance(work, CallRow):
            return work.claim is not None and work.claim != claim.token
        return self._started_by_another(claim)
