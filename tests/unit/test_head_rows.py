"""The columns that a batch writes of a head: few with most frames, all when one has changed, and the state when due."""

from datetime import UTC, datetime

from frameledger.ids import ContextId
from frameledger_services.projector import head_rows
from frameledger_services.projector.head import Head
from frameledger_services.store import tables
from frameledger_services.store.batch import Insert, Update

KEY = {"context_id", "rebuilt"}
BRIEF = {*KEY, "version", "last_at", "chain"}
WHOLE = {*KEY, *head_rows._WHOLE}
STATE = {"state", "state_version", "fold_version"}


def stored_head(name: str = "ctx") -> Head:
    head = Head.new(ContextId(name))
    list(head_rows.head_writes([head]))
    head.stored = True
    return head


def updated(*heads: Head) -> Update:
    (write,) = head_rows.head_writes(heads)
    assert isinstance(write, Update)
    return write


def test_a_new_head_is_inserted_with_all_its_columns_and_its_state():
    (write,) = head_rows.head_writes([Head.new(ContextId("ctx"))])
    assert isinstance(write, Insert)
    assert set(write.columns) == WHOLE | STATE
    assert set(write.columns) <= {column.name for column in tables.contexts.columns}


def test_only_what_each_frame_changes_is_written_while_nothing_else_has_changed():
    head = stored_head()
    head.version, head.chain, head.last_at = 1, b"next", datetime(2026, 1, 1, tzinfo=UTC)
    (row,) = updated(head).rows
    assert set(row) == BRIEF
    assert (row["version"], row["chain"], row["last_at"]) == (1, b"next", head.last_at)


def test_all_columns_are_written_when_one_of_the_others_has_changed_and_then_no_longer():
    head = stored_head()
    head.counters.messages += 1
    (row,) = updated(head).rows
    assert set(row) == WHOLE
    assert row["message_count"] == 1
    assert set(updated(head).rows[0]) == BRIEF


def test_a_head_that_was_loaded_is_written_with_all_columns_at_first():
    head = stored_head()
    head.written = None
    assert set(updated(head).rows[0]) == WHOLE


def test_the_heads_of_a_batch_have_the_same_columns_so_that_they_have_one_statement():
    quiet, busy = stored_head("quiet"), stored_head("busy")
    busy.counters.calls += 1
    write = updated(quiet, busy)
    assert [set(row) for row in write.rows] == [WHOLE, WHOLE]
    assert write.usual == head_rows._WHOLE


def test_the_state_is_written_when_it_is_due():
    head = stored_head()
    head.unsaved_bytes = head_rows.UNSAVED_BYTES
    assert set(updated(head).rows[0]) == BRIEF | STATE
    assert set(updated(head).rows[0]) == BRIEF


def test_a_parked_head_keeps_the_columns_of_its_state():
    head = stored_head()
    head.park("it cannot be folded", datetime(2026, 1, 1, tzinfo=UTC))
    head.counters.duplicates += 1
    (row,) = updated(head).rows
    parked = {"parked_version", "parked_at", "parked_error"}
    assert set(row) == WHOLE - head_rows.state_columns(head.state).keys() | parked
    assert set(updated(head).rows[0]) == BRIEF | parked
