"""The world of the simulation: a log, the tables, topics, claims and time. Nothing of it is real but the law.

`evolve` and `react` are the real ones. What a statement does here it does at once, as a transaction does; whoever acts
between two statements is a generator that yields there, and may be killed, frozen or overtaken at every yield.

The database may lose its latest commits, as a standby does that did not have them when it was promoted: then all that
is `IN_THE_DATABASE` is as it was a moment earlier, together, and the log, the topics and what the functions have done
are not.
"""

from __future__ import annotations

import json
import pickle
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice
from random import Random
from typing import Any

from tests.laws.arbitrary import as_from_a_record
from tests.laws.author import WORD
from tests.laws.simulation import limits
from tests.laws.simulation.lives import CONTEXT, Lives
from tests.laws.test_messages import assert_valid

from frameledger import effects
from frameledger.derived import effect_id
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
    ContextErased,
    EraBegan,
    MessageAppended,
    MessageEnded,
    MessageReplaced,
    RunClosed,
    RunOpened,
    RunRequested,
    RunStarted,
    SettingChanged,
)
from frameledger.evolve.erasure import is_of_an_earlier_life
from frameledger.fold import Conversation, Folding
from frameledger.frames import AnyFrame, Frame, FunctionCallsStartedFrame, LLMTextFrame, OfContext
from frameledger.ids import ContextId, RunId, ToolCallId, Version
from frameledger.react import react

LEASE = 5.0
MISSED_AFTER = 2.0
STANDBY_BEHIND = 2.0
"""How many seconds of commits are lost at most, when the database is lost."""

BEGAN = datetime(2026, 3, 1, tzinfo=UTC)
"""When all clocks are at 0."""

TRACE_LINES = 45

CONTEXT_CHANGES = (MessageAppended, MessageReplaced, MessageEnded, EraBegan, SettingChanged, ContextErased)


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
    claim: str | None = None
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
    claim: str | None = None
    started_at: float = 0.0
    safe: bool = False
    interrupted: bool = False
    waiting_since: float = 0.0
    by_client: bool = False
    """No worker starts it: it waits since its dispatch."""

    @property
    def is_over(self) -> bool:
        return self.status in ("done", "failed", "cancelled", "forgotten", "ambiguous")


@dataclass
class Claim:
    """A row of `claims`: who does what an effect asks for, which attempt of it that is, and the claim's token."""

    effect: RunInference | CallFunction
    worker: str
    attempt: int
    token: str
    taken_at: float
    released: bool = False
    finished_at: float | None = None


@dataclass(frozen=True)
class Taken:
    """What a worker knows of a claim: what the statement that took it has answered. It never reads it again."""

    effect: RunInference | CallFunction
    attempt: int
    token: str
    started: bool = False
    """Of a call: somebody had started it."""


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
    logged: list[datetime] = field(default_factory=list)
    """When the log took each."""

    wire: dict[str, deque[AnyFrame]] = field(default_factory=dict)
    """By publisher: what it sent and the log does not have yet."""

    stuck_until: dict[str, float] = field(default_factory=dict)
    """By publisher: its connection to the broker is slow until then, and goes on behind its back."""

    # What the projector writes, in one transaction each batch.
    epoch: int = 0
    next_offset: int = 0
    conversation: Conversation = field(default_factory=lambda: Conversation.new(CONTEXT))
    lives_kept: Lives = field(default_factory=Lives)
    erased_ids: set[str] = field(default_factory=set)
    """The runs and calls of lives that were erased."""

    left_out: int = 0
    """Frames of an earlier life that came behind its erasure."""

    outcomes: dict[str, tuple[str, str | None]] = field(default_factory=dict)
    runs: dict[str, RunRow] = field(default_factory=dict)
    calls: dict[CallKey, CallRow] = field(default_factory=dict)
    outbox: list[effects.Effect] = field(default_factory=list)
    last_at: float = 0.0
    changed_version: int = 0
    """The latest version at which a message or a setting changed, as the changes of the steps tell."""

    expectations: list[bool] = field(default_factory=list)
    """Of each frame that expected a version, whether nothing had changed since."""

    words_written: dict[int, str] = field(default_factory=dict)
    allowed: limits.Allowed = field(default_factory=limits.Allowed)
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

    refusals: Counter[str] = field(default_factory=Counter)
    """How often a frame was ignored, by the reason."""

    failovers: int = 0
    trace: list[str] = field(default_factory=list)
    _said_by: dict[str, tuple[str | None, int, str | None]] = field(default_factory=dict)
    """By word: run, attempt and claim of the worker that said it."""

    _tokens: int = 0
    _standby: deque[tuple[float, bytes, dict[str, Any]]] = field(default_factory=deque)
    """Commits by time. Values that change in place are pickled, which takes less than a deep copy; most are never
    loaded. Values that are only ever replaced are kept as they are."""

    _barred: set[str] = field(default_factory=set)
    _owners: dict[str, tuple[str, int, str | None]] = field(default_factory=dict)
    _brought: set[tuple[int, int]] = field(default_factory=set)
    _words: int = 0

    def say(self, who: str, what: str) -> None:
        self.trace.append(f"{self.now:8.2f}  {who:14} {what}")

    def broken(self, promise: str) -> PromiseBrokenError:
        told = "\n".join(self.trace[-TRACE_LINES:])
        return PromiseBrokenError(f"{promise}\n{told}")

    # The standby

    def replicate(self) -> None:
        """The standby gets what was committed, a few times a second."""
        if not self._standby or self.now - self._standby[-1][0] > 0.2:
            state = {name: getattr(self, name) for name in IN_THE_DATABASE}
            values = {name: state.pop(name) for name in ("conversation", "lives_kept", "allowed")}
            self._standby.append((self.now, pickle.dumps(state, pickle.HIGHEST_PROTOCOL), values))
            while self._standby[0][0] < self.now - STANDBY_BEHIND:
                self._standby.popleft()

    def fail_over(self) -> None:
        """The standby is promoted, and does not have the latest commits."""
        kept = self.rng.randrange(len(self._standby))
        while len(self._standby) > kept + 1:
            self._standby.pop()
        at, state, values = self._standby.pop()
        for name, value in (pickle.loads(state) | values).items():
            setattr(self, name, value)
        self.failovers += 1
        self.say("database", f"lost what was committed since {at:.2f}; offset {self.next_offset}")

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
        if isinstance(frame, LLMTextFrame):
            said_by = frame.run_id, frame.attempt or 1, frame.claim
            self._said_by |= dict.fromkeys(WORD.findall(frame.text), said_by)
        self._append(frame)
        run = f" {str(frame.run_id)[:4]}/{frame.attempt}" if getattr(frame, "run_id", None) else ""
        call = f" {frame.tool_call_id}" if hasattr(frame, "tool_call_id") else ""
        self.say(publisher, f"→ {len(self.log)} {frame.type}{run}{call}")
        if frame.id is not None and self.rng.random() < 0.05:
            self._append(frame)

    def _append(self, frame: AnyFrame) -> None:
        self.log.append(frame)
        self.logged.append(BEGAN + timedelta(seconds=self.now))

    def is_on_the_log(self, publisher: str) -> bool:
        """Whether everything of this publisher was acknowledged."""
        return not self.wire.get(publisher)

    # The projector's transaction

    def fold_batch(self, size: int) -> list[tuple[AnyFrame, State, Step | None]]:
        """What a batch of the next records comes to; nothing is stored yet."""
        folding = Folding(self.conversation)
        batch = []
        records = zip(self.log, self.logged, strict=True)
        for frame, at in islice(records, self.next_offset, self.next_offset + size):
            before = folding.state
            batch.append((frame, before, folding.step(frame, at)))
        return batch

    def commit(self, epoch: int, offset: int, batch: list[tuple[AnyFrame, State, Step | None]]) -> bool:
        """Store a batch whole, or nothing of it if the partition has another owner by now or has moved on."""
        if epoch != self.epoch or offset != self.next_offset:
            return False
        self._bar_what_was_ignored(batch)
        folding = Folding(self.conversation)
        for (frame, before, step), at in zip(batch, self.logged[offset:], strict=False):
            folding.step(frame, at)
            if step is None:
                self.left_out += is_of_an_earlier_life(before, frame)
            else:
                self.write(frame, at, before, step)
                limits.check(self, frame, at, before, step, folding.messages)
                if isinstance(frame, LLMTextFrame) and step.outcome == "applied":
                    self._check_words(frame)
                if step.changes:
                    self._check(folding, frame, step)
        self.conversation = folding.conversation()
        self.next_offset += len(batch)
        return True

    def write(self, frame: AnyFrame, at: datetime, before: State, step: Step) -> None:
        """Store one frame and what it changes."""
        self.last_at = self.now
        self.lives_kept = self.lives_kept.after(int(step.state.version), frame, at, self.now)
        if any(isinstance(change, ContextErased) for change in step.changes):
            self._erase()
        elif frame.id is not None:
            self.outcomes[frame.id] = step.outcome, step.reason
        refused_first = step.reason == "busy" or step.reason in limits.LIMITS_OF
        if isinstance(frame, OfContext) and frame.expected_version is not None and not refused_first:
            # Of a life after an erasure, version 0 is the one at which it began with nothing.
            of_nothing = before.erased.version if before.erased is not None else 0
            known = self.changed_version <= (frame.expected_version or of_nothing)
            self.expectations.append(known)
            if (step.outcome == "applied") != known:
                raise self.broken("who expects a version is heard if, and only if, nothing changed since")
        if any(isinstance(change, CONTEXT_CHANGES) for change in step.changes):
            self.changed_version = int(step.state.version)
        if (run_id := getattr(frame, "run_id", None)) in self.runs:
            self.runs[run_id].last_frame_at = self.now
        for change in step.changes:
            self._write_change(frame, step, change)
        if frame.type == "InterruptionFrame":
            self.interruptions.append(int(step.state.version))
            if before.runs.open is not None:
                self.cut_off.add(before.runs.open.run_id)
        self.cut_off |= {
            change.run_id
            for change in step.changes
            if isinstance(change, RunClosed) and change.end == "interrupted"
        }
        if frame.type == "EndFrame":
            self.ends.append(int(step.state.version))
        self.outbox += react(before, frame, step.state)

    def _erase(self) -> None:
        """Delete all of the conversation, as the projector's transaction does in which an erasure is folded."""
        self.erased_ids |= self.runs.keys() | {call.tool_call_id for call in self.calls.values()}
        for table in (self.outcomes, self.runs, self.calls, self.claims, self.words_written):
            table.clear()
        for notes in (self.outbox, self.interruptions, self.ends):
            notes.clear()
        self.cut_off.clear()

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
                self.runs[run_id].claim = change.claim
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
                row.claim, row.safe = change.claim, change.safe_to_retry
                if not change.again:
                    row.started_at = self.now
                row.by_client = row.dispatched_version == version
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
            # Inputs that were held are written together.
            before = self.words_written.get(version, "")
            self.words_written[version] = f"{before} {message['content']}".lstrip()

    # What must hold after every frame

    def _check_words(self, frame: LLMTextFrame) -> None:
        """What the context takes in is said by the latest attempt of a run that is open and was not cut off."""
        run = self.runs[str(frame.run_id)]
        by = "open", frame.attempt, frame.claim
        if (run.status, run.attempt, run.claim) != by or run.run_id in self.cut_off:
            raise self.broken("no word of a superseded attempt, a closed or an interrupted run is taken in")

    def _check(self, folding: Folding, frame: AnyFrame, step: Step) -> None:
        for change in step.changes:
            if isinstance(change, RunStarted):
                self._barred |= {
                    word
                    for word, (run_id, attempt, claim) in self._owners.items()
                    if run_id == change.run_id and (attempt, claim) != (change.attempt, change.claim)
                }
        if isinstance(frame, LLMTextFrame) and frame.run_id is not None:
            words = set(WORD.findall(frame.text))
            self._owners |= dict.fromkeys(words, (frame.run_id, frame.attempt or 1, frame.claim))
        rows = [message for _, message in folding.messages.rows()]
        for earlier, message, later in zip([None, *rows], rows, [*rows[1:], None], strict=False):
            try:
                assert_valid(earlier, message, later)
            except AssertionError as error:
                raise self.broken(
                    f"the context is valid for a provider after every frame: {error}"
                ) from error
        for message in rows:
            content = message.get("content")
            if message.get("role") != "assistant" or not isinstance(content, str):
                continue
            if len({self._said_by[word] for word in WORD.findall(content)}) > 1:
                raise self.broken("no answer is put together from two attempts")
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

    def heartbeat(self, worker: str, held: Mapping[str, str]) -> tuple[set[str], set[str]] | None:
        """Renew, and learn which of its runs and calls to stop, and which of its claims, by token, are lost; None for
        who is dead by the database's clock."""
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
        """It was without the database; what it does not know of it gives back."""
        if worker in self.lives:
            self.lives[worker].connected_at = self.now
            self.give_back_unknown(worker, held, older_than=0.0)

    def give_back_unknown(self, worker: str, held: Mapping[str, str], older_than: float) -> None:
        for claim in self.claims.values():
            known = held.get(claim.effect.id) == claim.token
            if claim.worker == worker and claim.finished_at is None and not known:
                claim.released |= self.now - claim.taken_at >= older_than

    def is_wanted(self, effect: RunInference | CallFunction) -> bool:
        """Whether the run or the call is still open and nobody has asked to stop it."""
        work = self.work_of(effect)
        if isinstance(work, RunRow):
            return work.status == "open"
        return work is not None and not work.is_over and not work.interrupted

    def call(self, effect: CallFunction) -> CallRow | None:
        return self.calls.get(CallKey(effect.requested_version, effect.ordinal))

    def work_of(self, effect: RunInference | CallFunction) -> RunRow | CallRow | None:
        return self.runs.get(effect.run_id) if isinstance(effect, RunInference) else self.call(effect)

    def claim(self, worker: str, effect: RunInference | CallFunction) -> Taken | None:
        """Take an effect that nobody took, or who took it ended without anything to show for it, if its run or call is
        still there to be worked on."""
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
        """The effects of what is open for a while and nobody has had, or whoever had it has nothing to show for it."""
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
        """Take what was released, or the work of a dead worker, with the next attempt; the latter only after a whole
        lease of being connected."""
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
        """Keep one's own work with the next attempt; None if it is another's by now."""
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

    def execute(self, worker: str, effect: CallFunction, *, safe: bool) -> None:
        """A function does what it does, in the world outside."""
        call = self.call(effect)
        assert call is not None
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
                if (call := self.call(effect)) is not None and call.by_client:
                    raise self.broken("no worker is asked for a call that a client answers")
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
            if claim.finished_at is None:
                yield f"a claim: {name_of(claim.effect)}"


IN_THE_DATABASE = (
    *(
        "epoch",
        "next_offset",
        "conversation",
        "lives_kept",
        "erased_ids",
        "left_out",
        "outcomes",
        "runs",
        "calls",
        "outbox",
        "last_at",
        "words_written",
        "changed_version",
        "expectations",
        "allowed",
    ),
    *("interruptions", "ends", "cut_off", "lives", "claims", "_barred", "_owners"),
)


def effect_of_run(run: RunRow) -> RunInference:
    """The effect that asked for a run: everybody derives the same id."""
    version, run_id = Version(run.opened_version or 0), RunId(run.run_id)
    named = effect_id("run_inference", ContextId(CONTEXT), version, run_id)
    return RunInference(named, ContextId(CONTEXT), version, run_id)


def effect_of(call: CallRow) -> CallFunction:
    """The effect that dispatched a call: everybody derives the same id."""
    version = Version(call.dispatched_version or 0)
    return CallFunction(
        effect_id("call_function", ContextId(CONTEXT), version, ToolCallId(call.tool_call_id)),
        ContextId(CONTEXT),
        version,
        call.key.requested_version,
        call.key.ordinal,
        ToolCallId(call.tool_call_id),
        call.function_name,
        None,
    )


def target(effect: RunInference | CallFunction) -> str:
    """What a cancellation of this effect's work names."""
    return str(effect.run_id if isinstance(effect, RunInference) else effect.tool_call_id)


def name_of(effect: RunInference | CallFunction) -> str:
    return f"run {effect.run_id[:4]}" if isinstance(effect, RunInference) else f"call {effect.tool_call_id}"
