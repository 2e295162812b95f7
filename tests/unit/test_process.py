"""A process of a service ends after SIGTERM, whatever the service has left running."""

import json

import pytest
from tests.support import leaking_process


def logged(output):
    """Returns what was logged, and the lines that were printed."""
    lines = output.read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")], [
        line for line in lines if not line.startswith("{")
    ]


@pytest.mark.regression("fault 73")
@pytest.mark.parametrize(
    ("leaves", "left"),
    [
        ("a task that goes on", "a task that goes on"),
        ("a thread that goes on", "threads of asyncio.to_thread"),
    ],
)
def test_a_process_ends_though_what_its_service_left_does_not(tmp_path, leaves, left):
    output = tmp_path / "output"
    with leaking_process.service(leaves, output) as process:
        assert process.hear() == "serving"
        assert process.stop() == 0
    [event], printed = logged(output)
    assert (event["event"], event["left"]) == ("process.did_not_end", [left])
    assert printed == ["last words"]


@pytest.mark.regression("fault 73")
def test_a_process_that_ends_without_a_task_still_says_how_its_service_failed(tmp_path):
    output = tmp_path / "output"
    with leaking_process.service("a task that goes on", output, fails=True) as process:
        assert process.hear() == "serving"
        assert process.stop() == 1
    [event], printed = logged(output)
    assert event["event"] == "process.did_not_end"
    assert printed[-1] == "LookupError: a bug"


def test_a_program_goes_on_when_everything_that_its_service_left_has_ended(tmp_path):
    output = tmp_path / "output"
    with leaking_process.service("a task that ends", output) as process:
        assert process.hear() == "serving"
        assert process.stop() == 0
        assert process.hear() == "went on"
    assert logged(output) == ([], ["last words"])
