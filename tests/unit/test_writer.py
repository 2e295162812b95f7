"""The columns that a batch writes of a head: those of the usual statement, and the state when it is due."""

from frameledger.ids import ContextId
from frameledger_services.projector import writer
from frameledger_services.projector.head import Head
from frameledger_services.store import tables

KEY = ("context_id", "rebuilt")


def test_a_head_is_written_with_the_usual_columns_and_its_state_is_now_and_then():
    head = Head.new(ContextId("ctx"))
    first = writer._head_row(head)
    head.stored = True
    assert set(first) == {*KEY, *writer._HEAD, "state", "state_version", "fold_version"}
    assert set(writer._head_row(head)) == {*KEY, *writer._HEAD}
    assert first.keys() <= {column.name for column in tables.contexts.columns}
