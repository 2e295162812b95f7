"""Converts the changes of a step of the fold to rows."""

from __future__ import annotations

from typing import Any, assert_never

from pydantic_core import to_json

from frameledger.evolve import Step
from frameledger.evolve.changes import (
    CallAnnounced,
    CallDispatched,
    CallInterrupted,
    CallProgressed,
    CallResolved,
    CallSettled,
    CallStarted,
    CallWaiting,
    Change,
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
from frameledger.evolve.state import Run, State
from frameledger.evolve.text import trimmed
from frameledger.frames import (
    AnyFrame,
    ErrorFrame,
    InterruptionFrame,
    LLMContextFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    TextFrame,
    Usage,
    UserStoppedSpeakingFrame,
)
from frameledger_services.projector.call_rows import write_call
from frameledger_services.projector.counted_rows import is_of_a_run, used, write_counted
from frameledger_services.projector.head import Head
from frameledger_services.projector.message_text import readable
from frameledger_services.projector.row_values import clean, clean_or_none
from frameledger_services.projector.rows import MessageRow, Rows
from frameledger_services.store.valid_to import FOR_EVER

Row = dict[str, Any]


def write_step(rows: Rows, head: Head, frame: AnyFrame, step: Step, before: State, logged_at: Any) -> None:
    """Add the changes of this step to the rows of the batch and to the head's counters.

    `head` still has the previous version; `step` has the next one.
    """
    if not step.changes and _is_more_text(head, frame, before):
        return
    writing = _Writing(rows, head, frame, step.state, before, logged_at)
    for change in step.changes:
        writing.write(change)
    if step.outcome == "applied":
        writing.notice()
        if type(frame) is InterruptionFrame:
            head.counters.interruptions += 1


def _is_more_text(head: Head, frame: AnyFrame, before: State) -> bool:
    """Whether a frame is more text of a run that already has text. Most frames are, and no row changes for them."""
    run = before.runs.open
    return (
        type(frame) is LLMTextFrame
        and frame.usage is None
        and run is not None
        and _counted(before) is None
        and head.first_text_of == (run.run_id, run.attempt)
        and before.runs.wanted is None
    )


class _Writing:
    """One step being written."""

    __slots__ = ("after", "before", "context_id", "era", "frame", "head", "logged_at", "rows", "version")

    def __init__(
        self, rows: Rows, head: Head, frame: AnyFrame, after: State, before: State, logged_at: Any
    ) -> None:
        self.rows = rows
        self.head = head
        self.frame = frame
        self.before = before
        self.after = after
        self.version = int(after.version)
        self.logged_at = logged_at
        self.era = before.place.era
        self.context_id = head.context_id

    def write(self, change: Change) -> None:
        counters = self.head.counters
        match change:
            case MessageAppended():
                counters.messages += 1
                self._open(change.position, change.message, change.run_id)
            case MessageReplaced():
                replaced = self.rows.end_message(self.context_id, self.era, change.position, self.version)
                self._open(change.position, change.message, replaced.run_id if replaced else None)
                self.rows.written[-1].inherits = replaced is None or replaced.inherits
            case MessageEnded():
                counters.messages -= 1
                self.rows.end_message(self.context_id, self.era, change.position, self.version)
            case EraBegan():
                counters.messages = 0
                self.era = change.era
                self.rows.eras.append((self.context_id, self.version, change.era))
                if isinstance(self.frame, LLMContextFrame):
                    self._note_origin(self.frame)
            case ContextErased():
                # Its rows are deleted with the batch: see `Rows.erasures`.
                self.head.origin = self.head.experiment = None
            case SettingChanged():
                self.rows.settings[self.context_id, change.name, self.version] = to_json(change.value)
            case RunRequested() | RunOpened() | RunStarted() | RunClosed():
                self._write_run(change)
            case (
                CallAnnounced()
                | CallDispatched()
                | CallStarted()
                | CallWaiting()
                | CallInterrupted()
                | CallProgressed()
                | CallSettled()
                | CallResolved()
            ):
                write_call(self.rows, self.head, change, self.version, self.logged_at)
            case _:
                assert_never(change)

    def notice(self) -> None:
        """Write what no change describes: the first text of an attempt, an error that closed nothing, a dropped run,
        and an answer that belongs to no run."""
        before, after = self.before, self.after
        if _counted(before) is not None or _counted(after) is not None:
            write_counted(self.rows, self.head, self.frame, before, after, self.logged_at)
        frame, run = self.frame, before.runs.open
        if run is not None:
            # Most frames are of this type, and `isinstance` with a class above it takes longer than all of this.
            if type(frame) is LLMTextFrame or (isinstance(frame, TextFrame) and frame.said_by == "model"):
                if run.run_id == _answered_run(after):
                    self._notice_text(frame, run)
            elif type(frame) is ErrorFrame and frame.run_id in (None, run.run_id) and is_of_a_run(frame):
                self._run(run.run_id).update(error=clean(frame.message), error_code=clean_or_none(frame.code))
        wanted = before.runs.wanted
        if wanted is not None and after.runs.wanted is None:
            opened = after.runs.open is not None and after.runs.open.run_id == wanted.run_id
            row = self._run(wanted.run_id)
            if not opened and row.get("status") not in ("open", "ended"):
                row.update(status="dropped", closed_version=self.version, closed_at=self.logged_at)

    def _notice_text(self, frame: TextFrame, run: Run) -> None:
        attempt = (run.run_id, int(run.attempt))
        if self.head.first_text_of != attempt and frame.text:
            self.head.first_text_of = attempt
            self._run(run.run_id)["first_text_at"] = self.logged_at
        if isinstance(frame, LLMTextFrame) and frame.usage is not None:
            self._used(run.run_id, frame.usage, partial=True)

    def _open(self, position: int, message: Any, run_id: str | None) -> None:
        role, text = readable(message)
        self.rows.write_message(
            MessageRow(
                context_id=self.context_id,
                era=self.era,
                position=position,
                valid_from=self.version,
                valid_to=FOR_EVER,
                role=role,
                text=text,
                run_id=run_id,
                message=to_json(message),
                said_at=self.logged_at,
            )
        )

    def _note_origin(self, frame: LLMContextFrame) -> None:
        """Keep the origin of the context if the frame names one (RA5.origin)."""
        if (origin := frame.forked_from) is not None:
            # Without fields that a program of another release may have added: views read only these three.
            forked_from = {"context_id": origin.context_id, "version": origin.version, "chain": origin.chain}
            self.head.origin = to_json(forked_from)
        if "experiment" in frame.metadata:
            self.head.experiment = bool(frame.metadata["experiment"])

    def _run(self, run_id: str) -> Row:
        return self.rows.run(self.context_id, run_id)

    def _write_run(self, change: RunRequested | RunOpened | RunStarted | RunClosed) -> None:
        match change:
            case RunRequested():
                if change.first:
                    self._new_run(change.run_id)
            case RunOpened():
                self.head.run_version = self.version
                self._run(change.run_id).update(
                    status="open", opened_version=self.version, opened_at=self.logged_at
                )
            case RunStarted():
                row = self._run(change.run_id)
                row.update(
                    attempt=change.attempt,
                    claim=clean_or_none(change.claim),
                    started_version=self.version,
                    started_at=self.logged_at,
                    first_text_at=None,
                )
                if isinstance(self.frame, LLMFullResponseStartFrame):
                    row.update(
                        worker=self.frame.worker,
                        provider=clean_or_none(self.frame.provider),
                        model=clean_or_none(self.frame.model),
                        request_sha256=clean_or_none(self.frame.request_sha256),
                    )
            case RunClosed():
                row = self._run(change.run_id)
                row.update(status=change.end, closed_version=self.version, closed_at=self.logged_at)
                if isinstance(self.frame, InterruptionFrame) and self.frame.heard_text is not None:
                    # The message keeps the part that was heard.
                    row["said"] = self._open_text(change.run_id)
                if isinstance(self.frame, LLMFullResponseEndFrame):
                    row["finish_reason"] = self.frame.finish_reason
                    if self.frame.usage is not None:
                        partial = self.frame.finish_reason == "error"
                        self._used(change.run_id, self.frame.usage, partial=partial)

    def _used(self, run_id: str, usage: Usage, *, partial: bool) -> None:
        self._run(run_id).update(used(usage, partial=partial))

    def _new_run(self, run_id: str) -> None:
        self.head.counters.runs += 1
        self.rows.new_runs[self.context_id, run_id] = {
            "context_id": self.context_id,
            "run_id": run_id,
            "requested_version": self.version,
            "requested_at": self.logged_at,
            "heard_version": self._heard_version(),
            "trigger": self.frame.type,
            "status": "noted" if self.head.state.terms.is_answered_elsewhere else "requested",
        }

    def _heard_version(self) -> int | None:
        """The version at which the user stopped speaking, if this frame ended the user's turn."""
        turn, now = self.before.turn, self.after.turn
        if turn is None or (now is not None and now.opened_version == turn.opened_version):
            return None
        if turn.stopped_version is None and isinstance(self.frame, UserStoppedSpeakingFrame):
            return self.version
        return turn.stopped_version

    def _open_text(self, run_id: str) -> str | None:
        response = self.before.speech.response
        return clean(trimmed(response.text)) or None if response and response.run_id == run_id else None


def _counted(state: State) -> str | None:
    return None if state.speech.response is None else state.speech.response.counts_as


def _answered_run(state: State) -> str | None:
    return None if state.speech.response is None else state.speech.response.run_id
