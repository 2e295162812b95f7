"""Times of publishers and of records: whatever they are, the stored ones can be read."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from frameledger_services.projector.row_values import at, time_of

EVERYWHERE = [timezone(timedelta(hours=hours)) for hours in range(-15, 16)]


@pytest.mark.regression("fault 14")
@pytest.mark.parametrize(
    "written",
    [
        "9999-12-31T23:59:59-14:00",
        "9999-12-31T23:59:59Z",
        "0001-01-01T00:00:00+14:00",
        "0001-01-01T00:00:00Z",
    ],
)
def test_a_time_at_the_end_of_all_times_is_none(written):
    assert time_of(written) is None


@pytest.mark.parametrize("written", ["2026-05-01T08:00:00+14:00", "2026-05-01T08:00:00Z"])
def test_any_other_time_is_kept(written):
    assert time_of(written) == datetime.fromisoformat(written)


@pytest.mark.regression("fault 15")
@pytest.mark.parametrize(
    "milliseconds", [2**63 - 1, -(2**63), 1_770_000_000_000_000_000, 253_402_300_800_000]
)
def test_the_time_of_any_record_can_be_read_everywhere(milliseconds):
    time = at(milliseconds)
    assert [time.astimezone(place) for place in EVERYWHERE] == [time] * len(EVERYWHERE)


def test_the_time_of_an_ordinary_record_is_its_own():
    assert at(1_770_000_000_123) == datetime(2026, 2, 2, 2, 40, 0, 123_000, tzinfo=UTC)
