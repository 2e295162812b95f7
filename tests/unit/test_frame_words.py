"""The one-line summary of each frame, for a terminal."""

import pytest
from tests.unit.frame_examples import EXAMPLES

from frameledger.record import decode
from frameledger_services.cli.terminal.escape import LONGEST
from frameledger_services.cli.terminal.format_frame import summary


def said(value):
    return summary(decode(value.encode()))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ('{"type":"LLMTextFrame","text":"hello"}', "hello"),
        ('{"type":"LLMRunFrame"}', ""),
        (
            '{"type":"LLMMessagesAppendFrame","messages":[{"role":"system","content":"a"},'
            '{"role":"user","content":"b"}]}',
            "user: b (and 1 before it)",
        ),
        ('{"type":"LLMMessagesUpdateFrame","messages":[]}', "no messages"),
        (
            '{"type":"LLMContextFrame","context":{"messages":[{"role":"system","content":"Be brief."}]}}',
            "system: Be brief.",
        ),
        (
            '{"type":"FunctionCallResultFrame","function_name":"f","tool_call_id":"c","arguments":{},"result":{"a":1}}',
            'f: {"a": 1}',
        ),
        ('{"type":"LLMUpdateSettingsFrame","settings":{"temperature":0.5}}', '{"temperature": 0.5}'),
        ('{"type":"LLMFullResponseEndFrame","finish_reason":"length"}', "length"),
        ('{"type":"FromTomorrow","text":"unknown, and yet"}', "unknown, and yet"),
        ('{"type":"FromTomorrow","messages":"no list","context":3,"function_calls":[1]}', ""),
    ],
)
def test_a_frame_is_shown_by_what_it_says(value, expected):
    assert said(value) == expected


def test_nothing_that_a_terminal_would_obey_is_shown():
    assert said('{"type":"LLMTextFrame","text":"a\\u001b[2Jb\\n\\tc\\u202ed"}') == "a�[2Jb c�d"


def test_a_long_text_is_shown_by_its_beginning():
    shown = said('{"type":"LLMTextFrame","text":"%s"}' % ("x" * 10_000))
    assert shown == "x" * (LONGEST - 1) + "…"


@pytest.mark.parametrize("frame", EXAMPLES, ids=lambda frame: frame.type)
def test_every_frame_has_words_of_one_line(frame):
    assert summary(frame).isprintable()
