"""Suggested commands work when they are copied into a shell."""

import ast
import re
import shlex
from pathlib import Path

import pytest

from frameledger_services import cli
from frameledger_services.cli import COMMANDS
from frameledger_services.cli.terminal import suggestion
from frameledger_services.cli.terminal.format_frame import settle_command
from frameledger_services.cli.terminal.lazy_commands import imported

IDS = ["plain", "my fork", "quo'te\"d", "-dash", "--help", "$HOME", "`id`", "a\\b", "%2e", "\u5bbd", "~", "#"]


def parsed(line):
    """The values that the suggested command is called with."""
    program, *words = shlex.split(line)
    assert program == "frameledger"
    command = imported(words[0], COMMANDS)
    while hasattr(command, "commands"):
        words = words[1:]
        command = command.commands[words[0]]
    return command.make_context(words[0], words[1:]).params


@pytest.mark.regression("journey 56")
@pytest.mark.parametrize("context", IDS)
def test_a_suggested_command_is_about_the_conversation_that_was_meant(context):
    assert parsed(suggestion.command("show", context))["context"] == context
    with_url = parsed(suggestion.command("chat", context, options=("--url", "http://x/?a b")))
    assert (with_url["context"], with_url["url"]) == (context, "http://x/?a b")
    for call in IDS:
        answer = parsed(settle_command("answer", context, call))
        assert (answer["context"], answer["call"], answer["result"]) == (context, call, "JSON")


@pytest.mark.regression("journey 56")
def test_control_characters_of_an_id_are_not_suggested():
    assert suggestion.command("show", "a\x1b[2J\nb").isprintable()


@pytest.mark.regression("journey 56")
def test_no_command_with_an_id_is_written_by_hand():
    room = Path(cli.__file__).parent
    by_hand = [
        (str(path.relative_to(room)), written.lineno)
        for path in room.rglob("*.py")
        for written in ast.walk(ast.parse(path.read_text()))
        if isinstance(written, ast.JoinedStr)
        for before, after in zip(written.values, written.values[1:], strict=False)
        if isinstance(before, ast.Constant)
        and isinstance(after, ast.FormattedValue)
        and re.search(r"\bframeledger ([a-z-]+ )+$", str(before.value))
    ]
    assert by_hand == []
