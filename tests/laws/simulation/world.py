"""The world of the simulation: a log, the tables, topics, claims and time. Nothing of it is real but the law.

`evolve` and `react` are the real ones. What a statement does here it does at once, as a transaction does; whoever acts
between two statements is a generator that yields there, and may be killed, frozen or overtaken at every yield.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.laws.arbitrary import as_from_a_record
from tests.laws.author import WORD
from tests.laws.test_messages import assert_valid

from frameledger import effects
from frameledger.effects import CallFunction, Cancel, RunInference
from frameledger.evolve import State, Step
from frameledger.evolve.changes import (
    CallAnnounced,
    CallDispatched,
    CallInterrupted,
    CallKey,
    CallResolved,
    CallSettled,
    CallStarted,
    CallWaiting,
    RunClosed,
    RunOpened,
    RunRequested,
    RunStarted,
)
from frameledger.fold import Conversation, Folding
from frameledger.frames import AnyFrame, Frame, FunctionCallsStartedFrame, LLMTextFrame
from frameledger.react import react

CONTEXT = "talk"
LEASE = 5.0
TRACE_LINES = 45


class PromiseBrokenError(AssertionError):
    """A promise is broken. The message is the promise; the world's trace tells how it came to that."""


class LeaseLostError(Exception):
    """A worker could not renew its lease: it may not publish any more, and begins anew as another worker."""


@dataclass
class RunRow:
    """A run as the table `runs` has it."""

    run_id: str
    requested_version: int
    opened_version: int | None = None
    opened_at: float = 0.0
    attempt: int = 0
    status: str = "requested"
    last_frame_at: float = 0.0


@dataclass
class CallRow:
    """A call as the table `tool_calls` has it."""

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
    safe: bool = False
    interrupted: bool = False
    waiting_since: float = 0.0

    @property
    def is_over(self) -> bool:
        return self.status in ("done", "failed", "cancelled", "forgotten", "ambiguous")


@dataclass
class Claim:
    """A row of `claims`: who does what an effect asks for, and which attempt of it that is."""

    effect: RunInference | CallFunction
    worker: str
    attempt: int = 1
    finished: bool = False


@dataclass
class Life:
    """A row of `workers`: one life of one process, by the database's clock."""

    connected_at: float
    heartbeat_at: float
    stopped: bool = False


@dataclass
class Topic:
    """A topic of effects and the offset that the group of its workers has committed."""

    records: list[effects.Effect] = field(default_factory=list)
    offset: int = 0


@dataclass
class World:
    """One conversation, and everybody's view of it."""

    rng: Random
    lossy: float = 0.3
    now: float = 0.0
    log: list[AnyFrame] = field(default_factory=list)
    wire: dict[str, deque[AnyFrame]] = field(default_factory=dict)
    """By publisher: what it sent and the log does not have yet."""

    stuck_until: dict[str, float] = field(default_factory=dict)
    """By publisher: its connection to the broker is slow until then, and goes on behind its back."""

    # What the projector writes, in one transaction each batch.
    epoch: int = 0
    next_offset: int = 0
    conversation: Conversation = field(default_factory=lambda: Conversation.new(CONTEXT))
    outcomes: dict[str, tuple[str, str | None]] = field(default_factory=dict)
    runs: dict[str, RunRow] = field(default_factory=dict)
    calls: dict[CallKey, CallRow] = field(default_factory=dict)
    outbox: list[effects.Effect] = field(default_factory=list)
    last_at: float = 0.0
    words_written: dict[int, str] = field(default_factory=dict)
    interruptions: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    cut_off: set[str] = field(default_factory=set)
    """Runs that an interruption found open."""

    # What workers write.
    lives: dict[str, Life] = field(default_factory=dict)
    claims: dict[str, Claim] = field(default_factory=dict)

    topics: dict[str, Topic] = field(default_factory=lambda: {"inference": Topic(), "functions": Topic()})
    listeners: dict[str, set[str]] = field(default_factory=dict)
    """By worker: the run and call ids that it was told to stop."""

    executions: dict[CallKey, int] = field(default_factory=dict)
    """How often a function really did what it does: the side of the effect."""

    trace: list[str] = field(default_factory=list)
    _barred: set[str] = field(default_factory=set)
    _owners: dict[str, tuple[str, int]] = field(default_factory=dict)
    _brought: set[tuple[int, int]] = field(default_factory=set)
    _words: int = 0

    def say(self, who: str, what: str) -> None:
        self.trace.append(f"{self.now:8.2f}  {who:14} {what}")

    def broken(self, promise: str) -> PromiseBrokenError:
        told = "\n".join(self.trace[-TRACE_LINES:])
        return PromiseBrokenError(f"{promise}\n{told}")

    def word(self) -> str:
        """A word that occurs once."""
        self._words += 1
        return f"w{self._words}."

    # The log

    def send(self, publisher: str, *frames: Frame) -> None:
        """Give frames to a producer: they will be on the log later, in order, if the process or the broker lives."""
        self.wire.setdefault(publisher, deque()).extend(as_from_a_record(frame) for frame in frames)

    def deliver(self) -> None:
        """The broker takes the next frame of some publisher; now and then a retry writes it twice."""
        waiting = [
            publisher
            for publisher, frames in self.wire.items()
            if frames and self.stuck_until.get(publisher, 0.0) <= self.now
        ]
        if not waiting:
            return
        publisher = self.rng.choice(waiting)
        frame = self.wire[publisher].popleft()
        self.log.append(frame)
        run = f" {str(frame.run_id)[:4]}/{frame.attempt}" if getattr(frame, "run_id", None) else ""
        call = f" {frame.tool_call_id}" if hasattr(frame, "tool_call_id") else ""
        self.say(publisher, f"→ {len(self.log)} {frame.type}{run}{call}")
        if frame.id is not None and self.rng.random() < 0.05:
            self.log.append(frame)

    def is_on_the_log(self, publisher: str) -> bool:
        """Whether everything of this publisher was acknowledged."""
        return not self.wire.get(publisher)

    # The projector's transaction

    def fold_batch(self, size: int) -> list[tuple[AnyFrame, State, Step | None]]:
        """What a batch of the next records comes to; nothing is stored yet."""
        folding = Folding(self.conversation)
        batch = []
        for frame in self.log[self.next_offset : self.next_offset + size]:
            before = folding.state
            batch.append((frame, before, folding.step(frame)))
        return batch

    def commit(self, epoch: int, offset: int, batch: list[tuple[AnyFrame, State, Step | None]]) -> bool:
        """Store a batch whole, or nothing of it if the partition has another owner by now or has moved on."""
        if epoch != self.epoch or offset != self.next_offset:
            return False
        self._bar_what_was_ignored(batch)
        folding = Folding(self.conversation)
        for frame, before, step in batch:
            folding.step(frame)
            if step is not None:
                self._write(frame, before, step)
                if isinstance(frame, LLMTextFrame) and step.outcome == "applied":
                    self._check_words(frame)
                if step.changes:
                    self._check(folding, frame, step)
        self.conversation = folding.conversation()
        self.next_offset += len(batch)
        return True

    def _write(self, frame: AnyFrame, before: State, step: Step) -> None:
        self.last_at = self.now
        if frame.id is not None:
            self.outcomes[frame.id] = step.outcome, step.reason
        if (run_id := getattr(frame, "run_id", None)) in self.runs:
            self.runs[run_id].last_frame_at = self.now
        for change in step.changes:
            self._write_change(frame, step, change)
        if frame.type == "InterruptionFrame":
            self.interruptions.append(int(step.state.version))
            if before.runs.open is not None:
                self.cut_off.add(before.runs.open.run_id)
        if frame.type == "EndFrame":
            self.ends.append(int(step.state.version))
        self.outbox += react(before, frame, step.state)

    def _write_change(self, frame: AnyFrame, step: Step, change: Any) -> None:
        version = int(step.state.version)
        match change:
            case RunRequested(run_id=run_id, first=True):
                self.runs[run_id] = RunRow(run_id, version)
            case RunOpened(run_id=run_id):
                run = self.runs[run_id]
                run.status, run.opened_version = "open", version
                run.opened_at = run.last_frame_at = self.now
            case RunStarted(run_id=run_id, attempt=attempt):
                self.runs[run_id].attempt = attempt
            case RunClosed(run_id=run_id, end=end):
                self.runs[run_id].status = end
            case CallAnnounced(key=key):
                assert isinstance(frame, FunctionCallsStartedFrame)
                by = frame.run_id, frame.attempt or 1
                self.calls[key] = CallRow(key, change.tool_call_id, change.function_name, self.now, by)
            case CallDispatched(key=key):
                row = self.calls[key]
                row.status, row.dispatched_version, row.dispatched_at = "dispatched", version, self.now
            case CallStarted(key=key):
                row = self.calls[key]
                row.status, row.worker, row.attempt = "running", change.worker, change.call_attempt or 0
                row.safe = change.safe_to_retry
            case CallWaiting(key=key):
                self.calls[key].status = "waiting"
                self.calls[key].waiting_since = self.now
            case CallInterrupted(key=key):
                self.calls[key].interrupted = True
            case CallSettled(key=key, end=end):
                if self.calls[key].is_over:
                    raise self.broken("every call is settled once")
                self.calls[key].status = end
            case CallResolved(key=key):
                self.calls[key].status = "done"
        message = getattr(change, "message", None)
        if message is not None and message.get("role") == "user":
            self.words_written[version] = message["content"]

    # What must hold after every frame

    def _check_words(self, frame: LLMTextFrame) -> None:
        """What the context takes in is said by the latest attempt of a run that is open and was not cut off."""
        run = self.runs[str(frame.run_id)]
        if (run.status, run.attempt) != ("open", frame.attempt) or run.run_id in self.cut_off:
            raise self.broken("no word of a superseded attempt, a closed or an interrupted run is taken in")

    def _check(self, folding: Folding, frame: AnyFrame, step: Step) -> None:
        for change in step.changes:
            if isinstance(change, RunStarted):
                self._barred |= {
                    word
                    for word, (run_id, attempt) in self._owners.items()
                    if run_id == change.run_id and attempt < change.attempt
                }
        if isinstance(frame, LLMTextFrame) and frame.run_id is not None:
            words = set(WORD.findall(frame.text))
            self._owners |= dict.fromkeys(words, (frame.run_id, frame.attempt or 1))
        rows = [message for _, message in folding.messages.rows()]
        for earlier, message, later in zip([None, *rows], rows, [*rows[1:], None], strict=False):
            try:
                assert_valid(earlier, message, later)
            except AssertionError as error:
                raise self.broken(
                    f"the context is valid for a provider after every frame: {error}"
                ) from error
        if self._barred & set(WORD.findall(json.dumps(rows))):
            raise self.broken("nothing of a superseded attempt or a closed run is in the context")

    def _bar_what_was_ignored(self, batch: list[tuple[AnyFrame, State, Step | None]]) -> None:
        """Words whose frame was ignored may never turn up in the context."""
        for frame, _, step in batch:
            if step is not None and step.outcome == "ignored" and isinstance(frame, LLMTextFrame):
                self._barred |= set(WORD.findall(frame.text))

    # Statements of workers

    def register(self, worker: str) -> None:
        self.lives[worker] = Life(self.now, self.now)
        self.listeners[worker] = set()

    def is_alive(self, worker: str) -> bool:
        life = self.lives.get(worker)
        return life is not None and not life.stopped and self.now - life.heartbeat_at < LEASE

    def heartbeat(self, worker: str) -> set[str]:
        """Renew, and learn which of its runs and calls to stop."""
        self.lives[worker].heartbeat_at = self.now
        return {
            target(claim.effect)
            for claim in self.claims.values()
            if claim.worker == worker and not claim.finished and not self.is_wanted(claim.effect)
        }

    def is_wanted(self, effect: RunInference | CallFunction) -> bool:
        """Whether the run or the call is still open and nobody has asked to stop it."""
        if isinstance(effect, RunInference):
            return self.runs[effect.run_id].status == "open"
        call = self.call(effect)
        return not call.is_over and not call.interrupted

    def call(self, effect: CallFunction) -> CallRow:
        return self.calls[CallKey(effect.requested_version, effect.ordinal)]

    def claim(self, worker: str, effect: RunInference | CallFunction) -> Claim | None:
        """Take an effect that nobody took, if its run or call is still there to be worked on."""
        if effect.id in self.claims:
            return None
        if isinstance(effect, RunInference):
            if self.runs[effect.run_id].status != "open":
                return None
        elif self.call(effect).status != "dispatched":
            return None
        self.claims[effect.id] = Claim(effect, worker)
        self.say(worker, f"claims {name_of(effect)}, attempt 1")
        return self.claims[effect.id]

    def take_over(self, worker: str, wanted: Callable[[Claim], bool]) -> Claim | None:
        """Take the work of a dead worker, with the next attempt; only after a whole lease of being connected."""
        if self.now - self.lives[worker].connected_at < LEASE:
            return None
        for claim in self.claims.values():
            if claim.finished or self.is_alive(claim.worker) or not wanted(claim):
                continue
            if isinstance(claim.effect, RunInference):
                over = self.runs[claim.effect.run_id].status != "open"
            else:
                over = self.call(claim.effect).is_over
            if over:
                claim.finished = True
                continue
            claim.worker, claim.attempt = worker, claim.attempt + 1
            self.say(worker, f"takes over {name_of(claim.effect)}, attempt {claim.attempt}")
            return claim
        return None

    def next_attempt(self, worker: str, claim: Claim) -> bool:
        """Keep one's own work with the next attempt; False if it is another's by now."""
        if claim.worker != worker or claim.finished:
            return False
        claim.attempt += 1
        return True

    def finish(self, worker: str, claim: Claim) -> None:
        if claim.worker == worker:
            claim.finished = True

    def execute(self, worker: str, effect: CallFunction, *, safe: bool) -> None:
        """A function does what it does, in the world outside."""
        call = self.call(effect)
        self.executions[call.key] = self.executions.get(call.key, 0) + 1
        self.say(worker, f"EXECUTES {call.tool_call_id} {call.function_name}")
        run_id, attempt = call.announced_by
        if run_id is not None and (self.runs[run_id].status, self.runs[run_id].attempt) != ("ended", attempt):
            raise self.broken("no call of a superseded or interrupted generation is executed")
        if call.is_over or call.interrupted:
            raise self.broken("no call that was cancelled or interrupted is executed")
        if run_id in self.cut_off:
            raise self.broken("no call of an interrupted generation is executed")
        if self.executions[call.key] > 1 and not safe:
            raise self.broken("no unsafe call is executed twice")

    # Effects

    def publish_effect(self, effect: effects.Effect) -> None:
        match effect:
            case RunInference():
                self.topics["inference"].records.append(effect)
            case CallFunction():
                self.topics["functions"].records.append(effect)
            case Cancel():
                for told in self.listeners.values():
                    if self.rng.random() >= self.lossy:
                        told.add(str(effect.run_id or effect.tool_call_id))

    # Rest

    def open_things(self) -> Iterator[str]:
        """What is not settled yet, in words."""
        state = self.conversation.state
        if self.next_offset < len(self.log) or any(self.wire.values()):
            yield "frames on their way"
        if self.outbox:
            yield "effects on their way"
        for name, topic in self.topics.items():
            if topic.offset < len(topic.records):
                yield f"effects of {name} that nobody looked at"
        if state.runs.open is not None or state.runs.wanted is not None:
            yield f"a run: {state.runs}"
        if state.runs.owed_to_bot or state.runs.owed_to_turn:
            yield f"a debt: {state.runs}"
        if state.turn is not None or state.speech.bot_since is not None:
            yield "somebody speaks"
        for call in state.calls.open.values():
            yield f"a call: {call.tool_call_id} {call.stage}"
        for claim in self.claims.values():
            if not claim.finished:
                yield f"a claim: {name_of(claim.effect)}"


def target(effect: RunInference | CallFunction) -> str:
    """What a cancellation of this effect's work names."""
    return str(effect.run_id if isinstance(effect, RunInference) else effect.tool_call_id)


def name_of(effect: RunInference | CallFunction) -> str:
    return f"run {effect.run_id[:4]}" if isinstance(effect, RunInference) else f"call {effect.tool_call_id}"
