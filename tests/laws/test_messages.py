"""The messages of a context: they can be stored as rows with their validity, and are always valid for a provider."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from tests.laws.strategies import conversations, moments

from frameledger.evolve.changes import (
    CallSettled,
    CallStarted,
    Change,
    EraBegan,
    Message,
    MessageAppended,
    MessageEnded,
    MessageReplaced,
    RunRequested,
)
from frameledger.frames import (
    LLMContextEraseFrame,
    LLMContextFrame,
    LLMMessageRewriteFrame,
    LLMMessagesAppendFrame,
    LLMMessagesUpdateFrame,
    LLMMirrorFrame,
    OfContext,
    OfMirror,
)
from frameledger.ids import Era, Position

MESSAGE_CHANGES = (MessageAppended, MessageReplaced, MessageEnded, EraBegan)

REWRITTEN: Message = {}
"""Stands for a message that a client rewrote."""


@dataclass
class Row:
    era: int
    position: int
    valid_from: int
    message: Message
    valid_to: int | None = None


@dataclass
class Rows:
    """The messages as in a database: no row is removed, and each is written once and ended once."""

    rows: list[Row] = field(default_factory=list)
    eras: list[tuple[int, int]] = field(default_factory=lambda: [(1, 0)])
    """Each era with the version that began it."""

    def write(self, version: int, changes: Iterable[Change]) -> None:
        for change in changes:
            match change:
                case MessageAppended():
                    self._add(change.position, version, change.message)
                case MessageReplaced():
                    self._end(change.position, version)
                    self._add(change.position, version, change.message)
                case MessageEnded():
                    self._end(change.position, version)
                case EraBegan():
                    self.eras.append((change.era, version))

    def at(self, version: int) -> list[tuple[int, Message]]:
        """The context at this version: the rows of its era that had begun and not ended."""
        era = next(era for era, began in reversed(self.eras) if began <= version)
        valid = [
            row
            for row in self.rows
            if row.era == era
            and row.valid_from <= version
            and (row.valid_to is None or version < row.valid_to)
        ]
        return [(row.position, row.message) for row in sorted(valid, key=lambda row: row.position)]

    def _add(self, position: int, version: int, message: Message) -> None:
        self.rows.append(Row(self.eras[-1][0], position, version, message))

    def _end(self, position: int, version: int) -> None:
        [row] = [
            row
            for row in self.rows
            if (row.era, row.position, row.valid_to) == (self.eras[-1][0], position, None)
        ]
        row.valid_to = version


@pytest.mark.rule("RA5.positions")
@given(conversations())
def test_rows_with_their_validity_give_the_context_at_every_version(frames):
    told = list(moments(frames))
    rows = Rows()
    for moment in told:
        rows.write(moment.after.version, moment.step.changes)
    for moment in told:
        assert rows.at(moment.after.version) == list(moment.rows)


@pytest.mark.rule("RA5.positions")
@given(conversations())
def test_a_position_is_given_once_in_its_era_and_only_to_what_comes_last(frames):
    era, newest = 1, 0
    living: set[int] = set()
    for moment in moments(frames):
        for change in moment.step.changes:
            match change:
                case EraBegan():
                    assert change.era == era + 1
                    era, newest, living = change.era, 0, set()
                case MessageAppended():
                    assert change.position > newest
                    newest = change.position
                    living.add(change.position)
                case MessageReplaced():
                    assert change.position in living
                case MessageEnded():
                    living.remove(change.position)
        assert (moment.after.place.era, moment.after.place.next_position) == (era, newest + 1)


@pytest.mark.rule("RA5.valid", "R2.3", "R3.5")
@given(conversations())
def test_the_context_is_valid_for_a_provider_after_every_frame_but_for_what_clients_brought(frames):
    brought: set[tuple[Era, Position]] = set()
    rewritten: set[tuple[Era, Position]] = set()
    for moment in moments(frames):
        era = moment.after.place.era
        if isinstance(moment.frame, LLMMessagesAppendFrame | LLMMessagesUpdateFrame | LLMContextFrame):
            brought |= {
                (era, change.position)
                for change in moment.step.changes
                if isinstance(change, MessageAppended)
            }
        wanted = moment.before.runs.wanted
        if wanted is not None and wanted.held:
            # What was held is written by another frame than the one that brought it (R7.5).
            brought |= {
                (era, change.position)
                for change in moment.step.changes
                if isinstance(change, MessageAppended) and change.message in wanted.held
            }
        if isinstance(moment.frame, LLMMessageRewriteFrame) and moment.step.changes:
            rewritten.add((era, Position(moment.frame.position)))
        ours: dict[Position, Message | None] = dict(moment.rows)
        ours |= {position: None for at_era, position in brought if at_era == era}
        ours |= {position: REWRITTEN for at_era, position in rewritten if at_era == era}
        told = [ours[position] for position in sorted(ours)]
        for before, message, behind in zip([None, *told], told, [*told[1:], None], strict=False):
            if message is not None and message is not REWRITTEN:
                assert_valid(before, message, behind)


def assert_valid(before: Message | None, message: Message, behind: Message | None) -> None:
    """Assert that the fold may have written this message between these two. None stands for a message of a client,
    `REWRITTEN` for one that a client replaced or removed."""
    match message:
        case {
            "role": "assistant",
            "tool_calls": [{"id": tool_call_id, "type": "function", "function": function}],
        }:
            assert isinstance(function["arguments"], str)
            assert behind is not None
            if behind is not REWRITTEN:
                assert (behind["role"], behind.get("tool_call_id")) == ("tool", tool_call_id)
        case {"role": "tool", "tool_call_id": tool_call_id, "content": str(content)}:
            assert content
            assert before is not None
            if before is not REWRITTEN:
                assert [call["id"] for call in before.get("tool_calls", ())] == [tool_call_id]
        case {"role": "assistant" | "user", "content": str(content)}:
            assert content
            assert content == content.strip()
            content.encode()
        case {"role": "developer", "content": str(content)}:
            assert content
        case {"llm": str(), "message": {"type": "thought", "text": str(text), "signature": signature}}:
            assert text.strip() or signature is not None
            text.encode()
        case _:
            raise AssertionError(f"the fold writes no such message: {message}")


@pytest.mark.rule("R3.5", "RA5.valid")
@given(conversations())
def test_the_tool_message_of_a_synchronous_call_says_in_progress_until_it_is_over(frames):
    """Applies as long as the message stays in its place, no mirror is open, and there is room for the result (R8.4).
    Here the message is found by searching for its call."""
    pending: dict[tuple[int, int], tuple[Era, Position]] = {}
    left: set[tuple[Era, Position]] = set()
    for moment in moments(frames):
        era = moment.after.place.era
        if isinstance(moment.frame, LLMMessageRewriteFrame) and moment.step.changes:
            place = (era, Position(moment.frame.position))
            pending = {key: at for key, at in pending.items() if at != place}
            left.discard(place)
        for change in moment.step.changes:
            if isinstance(change, CallStarted) and change.synchronous and not change.again:
                call = moment.after.calls.open[change.tool_call_id]
                assert call.running is not None
                assert (call.running.position is None) == (moment.after.terms.mirror is not None)
                if call.running.position is not None:
                    place = call.running.era, call.running.position
                    pending[change.key.requested_version, change.key.ordinal] = place
            elif isinstance(change, CallSettled):
                settled = pending.pop((change.key.requested_version, change.key.ordinal), None)
                stays = moment.after.terms.mirror is not None or moment.step.reason == "context_full"
                if settled is not None and stays:
                    left.add(settled)
        in_progress = {
            position for position, message in moment.rows if message.get("content") == "IN_PROGRESS"
        }
        assert in_progress == {position for at_era, position in (*pending.values(), *left) if at_era == era}


@pytest.mark.rule("RA5.mirror")
@given(conversations())
def test_in_a_mirror_only_clients_write_and_ask(frames):
    for moment in moments(frames):
        if moment.before.terms.mirror is not None and not isinstance(moment.frame, OfContext):
            assert not any(isinstance(change, MESSAGE_CHANGES) for change in moment.step.changes)
            if not isinstance(moment.frame, LLMContextEraseFrame):
                assert not any(isinstance(change, RunRequested) for change in moment.step.changes)
                assert not (moment.after.runs.owed_to_turn)
                assert not (moment.after.runs.owed_to_bot)


@pytest.mark.rule("RA5.mirror")
@given(conversations())
def test_nothing_that_is_said_for_another_mirror_counts(frames):
    for moment in moments(frames):
        frame = moment.frame
        if (
            isinstance(frame, OfContext | OfMirror)
            and not isinstance(frame, LLMMirrorFrame)
            and frame.mirror is not None
        ):
            superseded = frame.mirror != moment.before.terms.mirror
            # A limit refuses first (R8.4, R8.5).
            if moment.step.reason not in ("context_full", "too_many_frames"):
                assert (moment.step.reason == "mirror_superseded") == superseded


@pytest.mark.rule("RA5.rewrite", "RA5.positions")
@given(conversations())
def test_a_message_is_rewritten_where_there_is_one(frames):
    """Compares with the list of messages, which the state does not have."""
    before: dict[Position, Message] = {}
    for moment in moments(frames):
        frame, now = moment.frame, dict(moment.rows)
        if isinstance(frame, LLMMessageRewriteFrame):
            position = Position(frame.position)
            if moment.step.outcome == "applied":
                assert position in before
                assert list(now) == [one for one in before if one != position or frame.message is not None]
                changed = {} if frame.message is None else {position: frame.message}
                assert now == {one: said for one, said in before.items() if one != position} | changed
            elif moment.step.reason == "no_such_position":
                assert position not in before
        before = now
