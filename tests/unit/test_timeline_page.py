"""The output of `frameledger timeline`: names and effects are complete, however narrow the terminal is."""

import io
from dataclasses import fields
from datetime import UTC, datetime

import pytest

from frameledger_services.cli.audit.render_timeline import Lines
from frameledger_services.cli.audit.timeline_entries import Entry
from frameledger_services.cli.terminal.pager import Page
from frameledger_services.store.history import TimelineFrame

NAME = "a-rather-long-conversation-id-of-a-customer-2026-11-23-000017"
EFFECT = "message 1 (user), run 8b2d7ed6 requested"


def printed(width):
    """The lines of a timeline with one frame, on a page of so many columns."""
    given = dict.fromkeys((one.name for one in fields(TimelineFrame)), None) | {
        "version": 1,
        "logged_at": datetime(2026, 11, 23, 16, 4, 39, 737_000, UTC),
        "type": "LLMMessagesAppendFrame",
        "outcome": "applied",
        "did": EFFECT,
        "said": "Is there a night train to Brindle?",
    }
    frame = TimelineFrame(**given)
    file = io.StringIO()
    lines = Lines(Page(file, width, in_color=False), 1)
    lines.title(NAME, 1)
    lines.entry(Entry(1, 1, 1, frame, frame, frame.said))
    return file.getvalue().splitlines()


@pytest.mark.regression("journey 38")
@pytest.mark.parametrize("width", [40, 60, 80, 100])
def test_the_id_and_the_effect_are_whole_at_every_width(width):
    title, _, *lines = printed(width)
    assert title == f"{NAME} up to version 1"
    assert EFFECT in " ".join(" ".join(lines).split())
    assert max(map(len, lines)) <= width


def test_on_a_wide_page_a_frame_is_one_line():
    *_, line = printed(140)
    assert line.split(maxsplit=3)[2:] == [
        "LLMMessagesAppend",
        f'{EFFECT}  "Is there a night train to Brindle?"',
    ]
