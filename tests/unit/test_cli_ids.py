"""All commands check the id of a conversation by the same rule, before they connect."""

import pytest
from typer.testing import CliRunner

from frameledger_services.cli import application

TOO_LONG = "x" * 256


@pytest.mark.parametrize("context", ["", "a\x00b", TOO_LONG], ids=["empty", "nul", "long"])
@pytest.mark.parametrize(
    "command",
    [
        ("erase", "{}", "--why", "asked"),
        ("unpark", "{}"),
        ("rebuild", "--context", "ctx-1", "--context", "{}"),
        ("rerun", "--all-runs", "--context", "{}"),
        ("infer", "text", "--context", "{}"),
        ("export", "ctx-1", "{}"),
        ("show", "{}"),
        pytest.param(("verify", "{}"), marks=pytest.mark.regression("journey 62"), id="verify {}"),
        ("verify", "ctx-1", "{}"),
        ("fork", "ctx-1", "{}"),
        ("calls", "list", "{}"),
        ("tail", "{}"),
    ],
    ids=" ".join,
)
def test_an_id_that_no_conversation_can_have_is_refused_by_every_command(command, context):
    ran = CliRunner().invoke(application(), [one.format(context) for one in command])
    assert (ran.exit_code, "has 1 to 255 bytes" in " ".join(ran.stderr.split())) == (2, True), ran.stderr
