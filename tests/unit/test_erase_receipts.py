"""How `frameledger erase` prints a receipt."""

import uuid
from datetime import UTC, datetime

import pytest

from frameledger_services.cli.erase import receipts
from frameledger_services.event_log.topics import TopicNames
from frameledger_services.store.erasures import Places, Receipt

AT = datetime(2026, 5, 1, tzinfo=UTC)

RECEIPT = Receipt(
    context_id="ctx",
    erased_at=AT,
    version=3,
    frame_count=2,
    erased_by="projector",
    why="asked",
    chain=b"\x00",
    frame_id=uuid.UUID(int=1),
    requested_by="desk",
    logged_at=AT,
    partition=0,
    generation=1,
    offset=2,
    late_count=0,
    places=(Places(partition=0, generation=1, first_offset=0, last_offset=1, records=2),),
)


# The last is the largest that Kafka takes, and a usual one for topics that are kept for ever.
@pytest.mark.regression("fault 124")
@pytest.mark.parametrize("retention_ms", ["253402300800000", "9223372036854775807"])
def test_a_retention_beyond_the_year_9999_is_said_in_days(capsys, retention_ms):
    receipts.print_lines(RECEIPT, TopicNames(""), retention_ms, [])
    printed = capsys.readouterr().out
    assert " days.\n" in printed
    assert "until" not in printed


def test_a_retention_ends_on_a_day(capsys):
    receipts.print_lines(RECEIPT, TopicNames(""), "86400000", [])
    assert "kept 1 day: until 2026-05-02 00:00:00 UTC, and until its segment ends." in capsys.readouterr().out
