"""The lines of `frameledger tail` on terminals of any width."""

import io

import pytest
from rich.console import Console
from typer.testing import CliRunner

from frameledger.record import Record
from frameledger_services.cli import application, tail
from frameledger_services.cli.tail import _print_record, _record_as_json, lines_of

WORDS = "user: Is there a night train to the coast?"
UUID = "9f3c1c50-4f6e-4a52-8a51-0a6c0e4ad0d1"


def cells(key):
    return ("19:24:03Z", "  7:0       ", f"{key:<20}", f"{'LLMMessagesAppend':<26}")


@pytest.mark.regression("journey 46")
@pytest.mark.parametrize(
    ("key", "width", "lines"),
    [
        (
            "order-3",
            120,
            [f"19:24:03Z    7:0         order-3               LLMMessagesAppend           {WORDS}"],
        ),
        ("order-3", 80, [f"19:24:03Z  7:0  order-3  LLMMessagesAppend  {WORDS}"]),
        (UUID, 80, [f"19:24:03Z  7:0  {UUID}  LLMMessagesAppend", f"    {WORDS}"]),
    ],
)
def test_the_words_of_a_frame_have_room_beside_a_whole_id(key, width, lines):
    assert lines_of(cells(key), WORDS, width, may_break=True) == lines


def test_a_pipe_has_one_line_for_each_frame():
    assert len(lines_of(cells(UUID), WORDS, 80, may_break=False)) == 1


def test_short_words_need_no_more_room_than_they_have():
    assert lines_of(("19:24:03Z", "LLMRun     "), "", 22, may_break=True) == ["19:24:03Z  LLMRun"]
    assert lines_of(("19:24:03Z", "LLMRun     "), "ok", 26, may_break=True) == ["19:24:03Z  LLMRun       ok"]


@pytest.mark.regression("journey 98")
@pytest.mark.parametrize(
    ("timestamp_ms", "logged_at"),
    [
        (2**62, "9999-12-29T00:00:00.000+00:00"),
        (1_772_614_800_123, "2026-03-04T09:00:00.123+00:00"),
        (None, None),
    ],
)
def test_a_record_with_a_time_that_no_calendar_has_is_shown_with_that_of_the_tables(timestamp_ms, logged_at):
    value = b'{"type": "LLMRunFrame"}'
    record = Record("llm.frames", 0, 7, key=b"ctx-1", value=value, timestamp_ms=timestamp_ms)
    assert _record_as_json(record)["logged_at"] == logged_at
    printed = io.StringIO()
    _print_record(Console(file=printed, width=80), record)
    assert "ctx-1" in printed.getvalue()


@pytest.mark.regression("fault 275")
@pytest.mark.parametrize(("options", "code"), [([], 130), (["--follow"], 0)], ids=["a part", "--follow"])
def test_ctrl_c_before_everything_is_printed_is_no_success(monkeypatch, options, code):
    async def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setenv("FRAMELEDGER_KAFKA_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    monkeypatch.setattr(tail, "_log", interrupted)
    assert CliRunner().invoke(application(), ["tail", *options]).exit_code == code
