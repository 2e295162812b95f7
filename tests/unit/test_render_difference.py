"""How `verify` and `rebuild` print a difference."""

import json
from datetime import UTC, datetime
from uuid import UUID

import pytest

from frameledger_services.audit.differences import ROW, Difference, Differences
from frameledger_services.cli.audit.render_difference import LENGTH, as_objects, in_words
from frameledger_services.cli.terminal import output

KEY = {"era": 1, "position": 4}


@pytest.mark.parametrize(
    ("difference", "said"),
    [
        (Difference(3, "eras", {"valid_from": 3}, ROW, None, 2), "eras: a row is missing"),
        (
            Difference(3, "messages", KEY, ROW, "{}", None),
            "messages: a row of era 1, position 4 is unexpected",
        ),
        (
            Difference(3, "messages", KEY, "run_id", None, "run-1"),
            "messages.run_id of era 1, position 4 is null, should be run-1",
        ),
        (
            Difference(3, "contexts", {}, "chain", b"\x01\x02", None),
            'contexts.chain is "0102", should be null',
        ),
    ],
)
def test_a_difference_is_said_on_a_line(difference, said):
    assert in_words(difference) == said


def test_values_are_cut_and_nothing_is_left_that_a_terminal_obeys():
    said = in_words(Difference(3, "contexts", {"name": "\x1b[2J"}, "state.\x1b[2J", "\x1b[2J" * LENGTH, "x"))
    assert said.isprintable()
    assert said.count("[2J") == 2 + (LENGTH - 3) // len("\x1b[2J")
    assert "..., should be x" in said


def test_every_value_of_a_column_has_its_json(capsys):
    found = Differences()
    at = datetime(2026, 5, 1, 12, tzinfo=UTC)
    found.add(7, "frames", "payload", b"\xff", at, {"frame_id": UUID(int=1)})
    found.add(2, "eras", ROW, None, 2)
    output.print_json_object({"differences": as_objects(found)})
    assert json.loads(capsys.readouterr().out)["differences"] == [
        {"version": 2, "table": "eras", "key": {}, "field": "row", "stored": None, "expected": 2},
        {
            "version": 7,
            "table": "frames",
            "key": {"frame_id": "00000000-0000-0000-0000-000000000001"},
            "field": "payload",
            "stored": "ff",
            "expected": "2026-05-01T12:00:00+00:00",
        },
    ]
