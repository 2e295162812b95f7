"""The world of the simulation: a log, tables, topics, claims and time. Only `evolve` and `react` are the real ones.

A statement takes effect at once, like a transaction. Actors are generators that yield between two statements, and may
be killed, frozen or overtaken at every yield.

The database may lose its latest commits, like a standby that had not received them when it was promoted. Then
everything `IN_THE_DATABASE` is as it was a moment earlier, while the log, the topics and the effects of functions are
not.
"""

from __future__ import annotations

import json
import pickle
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

from tests.laws.arbitrary import as_from_a_record
from tests.laws.author import WORD
from tests.laws.simulation import limits
from tests.laws.simulation.claims import Claims
from tests.laws.simulation.lives import CONTEXT, Lives
from tests.laws.simulation.tables import CallRow, RunRow, name_of
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
from frameledger.react import react

STANDBY_BEHIND = 2.0
"""Maximum seconds of commits that are lost with the database."""

BEGAN = datetime(2026, 3, 1, tzinfo=UTC)
"""The time at which all clocks are 0."""

TRACE_LINES = 45

CONTEXT_CHANGES = (MessageAppended, MessageReplaced, MessageEnded, EraBegan, SettingChanged, ContextErased)


class PromiseBrokenError(AssertionError):
    """A promise is broken. The message is the promise; the world's trace shows what led to it."""


@dataclass
class Topic:
    """A topic of effects and the offset that the group of its workers has committed."""

    records: list[effects.Effect] = field(default_factory=list)
    offset: int = 0


@dataclass
class World(Claims):
    """One conversation, and the views that the actors have of it."""

    log: list[AnyFrame] = field(default_factory=list)
    logged: list[datetime] = field(default_factory=list)
    """The time at which the log received each frame."""

    wire: dict[str, deque[AnyFrame]] = field(default_factory=dict)
    """By publisher: what it sent that is not on the log yet."""

    stuck_until: dict[str, float] = field(default_factory=dict)
    """By publisher: the time until which nothing that it sent reaches the log. The publisher continues meanwhile."""

    # What the projector writes, in one transaction each batch.
    epoch: int = 0
    next_offset: int = 0
    conversation: Conversation = field(default_factory=lambda: Conversation.new(CONTEXT))
    lives_kept: Lives = field(default_factory=Lives)
    erased_ids: set[str] = field(default_factory=set)
    """The runs and calls of lives that were erased."""

    left_out: int = 0
    """Frames of an earlier life that came after its erasure."""

    outcomes: dict[str, tuple[str, str | None]] = field(default_factory=dict)
    outbox: list[effects.Effect] = field(default_factory=list)
    last_at: float = 0.0
    changed_version: int = 0
    """The latest version at which a message or a setting changed, according to the changes of the steps."""

    expectations: list[bool] = field(default_factory=list)
    """For each frame that expected a version, whether nothing had changed since."""

    words_written: dict[int, str] = field(default_factory=dict)
    allowed: limits.Allowed = field(default_factory=limits.Allowed)
    interruptions: list[int] = field(default_factory=list)
    ended_at: list[int] = field(default_factory=list)
    """The versions at which the context had ended: words that were written by then request nothing (R1.6)."""

    cut_off: set[str] = field(default_factory=set)
    """Runs that were open at an interruption."""

    topics: dict[str, Topic] = field(default_factory=lambda: {"inference": Topic(), "functions": Topic()})
    executions: dict[CallKey, int] = field(default_factory=dict)
    """The number of times that a function had its effect."""

    refusals: Counter[str] = field(default_factory=Counter)
    """The number of ignored frames, by reason."""

    failovers: int = 0
    _said_by: dict[str, tuple[str | None, int, str | None]] = field(default_factory=dict)
    """By word: run, attempt and claim of the worker that published it."""

    _standby: deque[tuple[float, bytes, dict[str, Any]]] = field(default_factory=deque)
    """Commits by time. Values that change in place are pickled, which takes less than a deep copy; most are never
    loaded. Values that are only ever replaced are kept as they are."""

    _barred: set[str] = field(default_factory=set)
    _owners: dict[str, tuple[str, int, str | None]] = field(default_factory=dict)
    _brought: set[tuple[int, int]] = field(default_factory=set)
    _words: int = 0

    def broken(self, promise: str) -> PromiseBrokenError:
        told = "\n".join(self.trace[-TRACE_LINES:])
        return PromiseBrokenError(f"{promise}\n{told}")

    # The standby

    def replicate(self) -> None:
        """Let the standby receive what was committed, a few times a second."""
        if not self._standby or self.now - self._standby[-1][0] > 0.2:
            state = {name: getattr(self, name) for name in IN_THE_DATABASE}
            values = {name: state.pop(name) for name in ("conversation", "lives_kept", "allowed")}
            self._standby.append((self.now, pickle.dumps(state, pickle.HIGHEST_PROTOCOL), values))
            while self._standby[0][0] < self.now - STANDBY_BEHIND:
                self._standby.popleft()

    def fail_over(self) -> None:
        """Promote the standby, which does not have the latest commits."""
        kept = self.rng.randrange(len(self._standby))
        while len(self._standby) > kept + 1:
            self._standby.pop()
        at, state, values = self._standby.pop()
        for name, value in (pickle.loads(state) | values).items():
            setattr(self, name, value)
        self.failovers += 1
        self.say("database", f"lost what was committed since {at:.2f}; offset {self.next_offset}")

    def word(self) -> str:
        """Returns a word that occurs only once."""
        self._words += 1
        return f"w{self._words}."

    # The log

    def send(self, publisher: str, *frames: Frame) -> None:
        """Give frames to a producer. They are on the log later, in order, if the process or the broker survives."""
        self.wire.setdefault(publisher, deque()).extend(as_from_a_record(frame) for frame in frames)

    def deliver(self) -> None:
        """Let the broker receive the next frame of some publisher. Sometimes a retry writes it twice."""
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
        """Fold a batch of the next records, without storing anything."""
        folding = Folding(self.conversation)
        batch = []
        records = zip(self.log, self.logged, strict=True)
        for frame, at in islice(records, self.next_offset, self.next_offset + size):
            before = folding.state
            batch.append((frame, before, folding.step(frame, at)))
        return batch

    def commit(self, epoch: int, offset: int, batch: list[tuple[AnyFrame, State, Step | None]]) -> bool:
        """Store a whole batch, or nothing if the partition has another owner by now or is already past it."""
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
            # In a life after an erasure, version 0 is the version of the erasure.
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
        if step.state.terms.ended:
            self.ended_at.append(int(step.state.version))
        self.outbox += react(before, frame, step.state)

    def _erase(self) -> None:
        """Delete the whole conversation, like the projector's transaction that folds an erasure."""
        self.erased_ids |= self.runs.keys() | {call.tool_call_id for call in self.calls.values()}
        for table in (self.outcomes, self.runs, self.calls, self.claims, self.words_written):
            table.clear()
        for notes in (self.outbox, self.interruptions, self.ended_at):
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
        """Text in the context comes from the latest attempt of a run that is open and was not interrupted."""
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
        """Words of an ignored frame never appear in the context."""
        for frame, _, step in batch:
            if step is not None and step.outcome == "ignored" and isinstance(frame, LLMTextFrame):
                self._barred |= set(WORD.findall(frame.text))

    def execute(self, worker: str, effect: CallFunction, *, safe: bool) -> None:
        """Record that a function had its effect in the outside world."""
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
        """Returns a description of what is not settled yet."""
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
    *("interruptions", "ended_at", "cut_off", "lives", "claims", "_barred", "_owners"),
)
