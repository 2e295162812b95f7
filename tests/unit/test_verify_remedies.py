"""The remedies that `frameledger verify` prints for differences that are hard to cause on servers."""

import pytest

from frameledger_services.audit.differences import ROW, Differences
from frameledger_services.cli.audit import verify_rows


@pytest.mark.regression("fault 196")
@pytest.mark.parametrize(
    ("stored", "expected", "remedy"),
    [
        (None, "a frame is on the log, frames/0 at 3", "`frameledger rebuild --from kafka"),
        ("the frame is stored, from frames/0 at 3", None, "If Kafka lost the records"),
    ],
)
def test_a_missing_row_and_a_missing_record_have_remedies_of_their_own(stored, expected, remedy):
    differences = Differences()
    differences.add(4, "log", ROW, stored, expected)
    told = list(verify_rows._remedies(verify_rows._Summary(differences={"ctx": differences})))
    assert len(told) == 1
    assert told[0].startswith(remedy)
