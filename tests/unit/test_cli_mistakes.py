"""Mistakes of users, and the errors of the command line: what happened, to what, and what to do next."""

import os
import re
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from click import Context
from tests.support.tiers import long
from typer import Exit
from typer.testing import CliRunner

from frameledger_services.cli import COMMANDS, application
from frameledger_services.cli.audit.rebuild import fail_of_missing
from frameledger_services.cli.terminal import backend
from frameledger_services.cli.terminal.lazy_commands import imported
from frameledger_services.missing_permission import lacks
from frameledger_services.store.connections import failure
from frameledger_services.store.transfer import StoredPresence

NOWHERE = "postgresql://127.0.0.1:1/nowhere"

NEED_SETTINGS = (
    "down",
    "status",
    "logs",
    "top",
    "run projector",
    "publish a {}",
    "list",
    "search a",
    "show a",
    "transcript a",
    "tail",
    "request a 8c6d7f34-9c55-4c6e-9c6f-5f4dbdb0ca2e",
    "sql -c a",
    "timeline a",
    "diff a 1",
    "why a 1",
    "runs a",
    "fork a b",
    "rerun a",
    "replay a",
    "infer a",
    "calls list",
    "parked",
    "unpark a",
    "rebuild",
    "recover",
    "dlq list",
    "verify --all",
    "heads",
    "prove a",
    "export a",
    "erase a --why b --yes",
    "config",
    "asyncapi",
    "topics",
    "migrate",
    "token list",
    "chat a",
)
"""Every command that reads the settings, but `up`, `demo` and those that look at a file first."""


@pytest.fixture
def command(monkeypatch, tmp_path):
    """Run a command in an empty folder, where nothing runs and nothing is set."""
    monkeypatch.chdir(tmp_path)
    return lambda *words, typed=None: CliRunner().invoke(application(), list(words), input=typed)


def test_who_publishes_nothing_is_told(command, tmp_path):
    (tmp_path / "empty.jsonl").touch()
    for words, typed in [(["publish", "ctx"], "\n"), (["publish", "ctx", "empty.jsonl"], None)]:
        said = command(*words, typed=typed)
        assert said.exit_code == 0
        assert said.stdout == ""
        assert said.stderr == "The input has no frame to publish.\n"


@pytest.mark.parametrize("name", ["", "x" * 256, "a\x00b"])
@pytest.mark.parametrize("words", [["publish", "{}", "frame"], ["show", "{}"], ["erase", "{}", "--why", "w"]])
def test_what_is_no_id_of_a_conversation_is_a_wrong_argument(command, words, name):
    said = command(*(word.replace("{}", name) for word in words))
    assert said.exit_code == 2
    assert "CONTEXT" in said.stderr
    assert "1 to 255 bytes" in said.stderr


@pytest.mark.regression("journey 31")
@pytest.mark.parametrize(
    "words",
    [
        ["show", "{}"],
        ["search", "{}"],
        ["fork", "ctx", "{}"],
        ["calls", "list", "{}"],
        ["export", "ctx", "{}"],
    ],
)
def test_an_argument_that_is_not_text_is_a_wrong_argument(command, words):
    said = command(*(word.replace("{}", os.fsdecode(b"\xff")) for word in words))
    assert said.exit_code == 2
    assert "is not text" in said.stderr


@pytest.mark.regression("journey 31")
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a file that is always full")
@pytest.mark.parametrize(("to", "code"), [(">/dev/full", 1), (">&-", 0)])
def test_an_output_that_cannot_be_written_is_no_traceback(to, code):
    script = f'exec "$0" -m frameledger_services asyncapi {to}'
    ran = subprocess.run(["sh", "-c", script, sys.executable], stderr=subprocess.PIPE, check=False)
    assert ran.returncode == code
    assert ran.stderr == (b"The output cannot be written: No space left on device.\n" if code else b"")


@pytest.mark.regression("journey 87")
@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        ("fold {} 2>&-", 0, ""),
        ("erase ctx --why why <&-", 1, "Use --yes to confirm."),
        long("fold - <&-", 0, ""),
        ("publish ctx <&-", 0, ""),
    ],
)
def test_what_a_shell_has_closed_is_empty_or_not_read(command, code, said, tmp_path):
    file = tmp_path / "frames.jsonl"
    file.write_text('{"type": "LLMRunFrame"}\n', encoding="utf-8")
    script = f'exec "$0" -m frameledger_services {command.format(file)}'
    ran = subprocess.run(
        ["sh", "-c", script, sys.executable], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert "Traceback" not in ran.stderr
    assert (ran.returncode, said in ran.stderr) == (code, True), ran.stderr
    # What is read is shown, also where nobody reads the errors.
    assert ("LLMRun" in ran.stdout) == ("{}" in command)


@pytest.mark.regression("journey 31")
@pytest.mark.parametrize(
    "words",
    [
        ["list", "--limit", "{}"],
        ["list", "--skip", "{}"],
        ["why", "ctx", "{}"],
        ["timeline", "ctx", "--to", "{}"],
    ],
)
def test_a_number_that_no_database_has_is_a_wrong_argument(command, words):
    said = command(*(word.replace("{}", str(2**63 - 1)) for word in words))
    assert said.exit_code == 2
    assert "the largest number is 1,000,000,000,000,000,000" in " ".join(said.stderr.replace("│", "").split())


@pytest.mark.regression("journey 34")
@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["request", "ctx", ""], "RUN"),
        (["infer", ""], "TEXT"),
        (["publish", "ctx", ""], "FRAME"),
        (["token", "revoke", ""], "TOKEN"),
        (["calls", "answer", "ctx", "", "--result", "1"], "CALL"),
    ],
)
def test_an_empty_argument_is_a_wrong_argument(command, words, name):
    said = command(*words)
    assert said.exit_code == 2
    assert name in said.stderr
    assert "is empty" in said.stderr


@pytest.mark.regression("journey 34")
@pytest.mark.parametrize(("name", "end"), [("timeline", "--to"), ("replay", "--until")])
def test_a_range_without_a_version_is_a_wrong_argument(command, name, end):
    said = command(name, "ctx", "--from", "5", end, "3")
    assert said.exit_code == 2
    assert end in said.stderr
    assert "version 3 comes before --from 5" in said.stderr


@pytest.mark.regression("journey 39")
@pytest.mark.regression("journey 121")
@pytest.mark.parametrize("words", [["export", "--all"], ["rerun", "--all-runs"]])
@pytest.mark.parametrize("time", ["tomorrow", "12"])
def test_a_time_that_is_none_is_answered_with_the_form_of_one(command, words, time):
    said = command(*words, "--since", time)
    assert said.exit_code == 2
    assert "--since" in said.stderr
    assert "a time such as 2026-05-01" in " ".join(said.stderr.replace("│", " ").split())
    assert "version" not in said.stderr


@pytest.mark.regression("journey 85")
@pytest.mark.parametrize(
    ("words", "option", "reason"),
    [
        (("export", "x", "--format", "xml"), "--format", "'xml' is not one of 'jsonl'"),
        (("chat", "x", "--second-input", "nope"), "--second-input", "'nope' is not one of 'enqueue'"),
        (("publish", "x", "{}", "--cause", ""), "--cause", "a frame's id has 1 to 255 bytes"),
    ],
)
def test_a_wrong_value_of_an_option_is_told_in_our_words(command, words, option, reason):
    said = command(*words)
    assert said.exit_code == 2
    told = " ".join(said.stderr.replace("│", " ").split())
    assert f"Invalid value for '{option}': {reason}" in told


@pytest.mark.regression("journey 39")
def test_a_name_that_no_token_can_have_is_answered_with_what_a_name_is(command):
    said = command("token", "new", "--name", "my token")
    assert said.exit_code == 1
    assert "a name has 1 to 100 letters, digits and . _ @ -" in said.stderr
    assert "pattern" not in said.stderr


@pytest.mark.regression("journey 32")
def test_a_reader_of_the_output_that_has_ended_is_left_to_the_command_line(capsys):
    with pytest.raises(BrokenPipeError), backend.exit_on_error(OSError):
        raise BrokenPipeError
    assert capsys.readouterr().err == ""


def test_an_address_that_is_none_is_answered_with_the_form_of_one(command, monkeypatch):
    monkeypatch.setenv("FRAMELEDGER_DATABASE_URL", "localhost")
    said = command("list")
    assert said.exit_code == 1
    assert "postgresql://USER@HOST:5432/NAME" in said.stderr


def test_a_database_that_is_not_reached_is_answered_with_where_to_look(command, monkeypatch):
    monkeypatch.setenv("FRAMELEDGER_DATABASE_URL", NOWHERE)
    said = command("list")
    assert said.exit_code == 1
    assert said.stderr.startswith(f"The database {NOWHERE}: connection failed: ")
    assert said.stderr.endswith(
        "Is it running (`frameledger status`), and is FRAMELEDGER_DATABASE_URL right?\n"
    )


@pytest.mark.regression("journey 45")
@pytest.mark.parametrize(
    "words", [["migrate"], ["export", "--all"], ["rebuild"], ["recover"], ["heads"]], ids=" ".join
)
def test_a_database_that_is_not_reached_has_rejected_nothing(command, monkeypatch, words):
    monkeypatch.setenv("FRAMELEDGER_DATABASE_URL", NOWHERE)
    monkeypatch.setenv("FRAMELEDGER_KAFKA_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    said = command(*words)
    assert said.exit_code == 1
    assert said.stderr.startswith(("The database did not answer: ", "The database could not be read: "))
    assert "Is it running (`frameledger status`), and is FRAMELEDGER_DATABASE_URL right?\n" in said.stderr


@pytest.mark.regression("journey 43")
@pytest.mark.parametrize("words", NEED_SETTINGS, ids=lambda words: words.partition(" ")[0])
def test_a_wrong_setting_is_one_sentence_of_every_command(command, monkeypatch, words):
    monkeypatch.setenv("FRAMELEDGER_LOG_LEVEL", "loud")
    said = command(*words.split())
    assert said.exit_code == 1
    assert said.stderr.startswith("FRAMELEDGER_LOG_LEVEL takes debug, info, "), said.stderr


@pytest.mark.regression("journey 45")
def test_doctor_says_of_a_server_of_ones_own_what_to_check(command, monkeypatch):
    monkeypatch.setenv("FRAMELEDGER_DATABASE_URL", NOWHERE)
    said = " ".join(command("doctor").stdout.split())
    assert "Start it, or set FRAMELEDGER_DATABASE_URL to its address." in said


def test_what_a_database_that_answers_refuses_is_not_about_its_address():
    said = str(
        failure("The database", psycopg.errors.InsufficientPrivilege("permission denied for table contexts"))
    )
    assert said == "The database: permission denied for table contexts"


@pytest.mark.regression("journey 47")
def test_a_right_that_a_change_lacks_is_told_with_the_role_that_has_it(capsys):
    refused = psycopg.errors.InsufficientPrivilege("permission denied for table contexts")
    with pytest.raises(Exit), backend.exit_on_error(), backend.change():
        raise lacks(refused, "my-app", "frameledger_projector")
    said = capsys.readouterr().err
    assert said.startswith(
        "The database rejected the change: The database user 'my-app' lacks a permission: "
    )
    assert "permission denied for table contexts." in said
    assert 'GRANT frameledger_projector TO "my-app"' in said


@pytest.mark.regression("journey 47")
def test_rebuild_names_the_conversations_that_are_not_there_or_says_that_one_changed(capsys):
    there = StoredPresence("there", 3, None, None)
    with pytest.raises(Exit):
        fail_of_missing([there, StoredPresence("gone", None, None, None)])
    assert capsys.readouterr().err.startswith("These conversations do not exist: 'gone'.\n")
    with pytest.raises(Exit):
        fail_of_missing([there])
    assert capsys.readouterr().err.endswith("It was not folded again.\nRun the command again.\n")


def test_doctor_says_once_what_is_to_be_done_about_servers_that_nobody_named(command):
    said = command("doctor")
    assert said.exit_code == 1
    assert said.stdout.count("FRAMELEDGER_DATABASE_URL") == 1
    assert said.stdout.count("FRAMELEDGER_KAFKA_BOOTSTRAP_SERVERS") == 1


def test_doctor_leads_from_a_wrong_setting_to_the_list_of_them(command, monkeypatch):
    monkeypatch.setenv("FRAMELEDGER_LOG_LEVEL", "loud")
    said = command("doctor")
    assert said.exit_code == 1
    assert "`frameledger config` then lists all settings" in said.stdout


def test_a_module_of_functions_that_raises_shows_where_and_none_of_our_code(command, tmp_path, monkeypatch):
    monkeypatch.setenv("FRAMELEDGER_DATABASE_URL", NOWHERE)
    monkeypatch.setenv("FRAMELEDGER_KAFKA_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "broken_tools.py").write_text("def f():\n    return {}['a']\n\nf()\n", encoding="utf-8")
    (tmp_path / "lacking_tools.py").write_text("import no_such_package\n", encoding="utf-8")
    (tmp_path / "misspelt_tools.py").write_text("def f(:\n", encoding="utf-8")
    refused = (
        "from frameledger_services.functions import schema_of\n\n\ndef f(*words): ...\n\n\nschema_of(f)\n"
    )
    (tmp_path / "refused_tools.py").write_text(refused, encoding="utf-8")
    for module, lines in {
        "broken_tools": ["line 4, in <module>", "line 2, in f", "KeyError: 'a'"],
        "lacking_tools": ["line 1, in <module>", "ModuleNotFoundError: No module named 'no_such_package'"],
        "misspelt_tools": ["line 1", "SyntaxError: invalid syntax"],
        "refused_tools": [
            "line 7, in <module>",
            "FunctionSchemaError: f: the parameter 'words' cannot be given",
        ],
    }.items():
        said = command("run", "functions", "--module", module)
        assert said.exit_code == 1
        assert said.stderr.startswith(f"The module {module!r} cannot be imported:\n")
        assert [line for line in lines if line not in said.stderr] == []
        assert "importlib" not in said.stderr
        assert f"{Path('frameledger_services')}{os.sep}" not in said.stderr


def test_a_file_that_is_none_to_verify_is_named_with_those_that_are(command, tmp_path):
    (tmp_path / "note.json").write_text("a shopping list\n", encoding="utf-8")
    said = command("verify", "note.json")
    assert said.exit_code == 1
    assert said.stderr == (
        "note.json cannot be verified: its first line is not that of a proof, of heads or of an export.\n"
        "Give a file written by `frameledger prove`, `frameledger heads --full` or `frameledger export`.\n"
    )


def test_a_file_that_was_changed_since_its_export_is_named_with_the_line(command, tmp_path):
    (tmp_path / "talk.jsonl").write_text('{"frameledger":"conversation"}\n', encoding="utf-8")
    said = command("verify", "talk.jsonl")
    assert said.exit_code == 1
    assert said.stderr.startswith("talk.jsonl, line 1: it was changed")
    assert "Export the conversation again" in said.stderr


def test_a_file_to_import_is_looked_at_before_a_database_is_looked_for(command, tmp_path):
    (tmp_path / "note.json").write_text("{}", encoding="utf-8")
    missing, other = command("import", "nowhere.jsonl"), command("import", "note.json")
    assert (missing.exit_code, other.exit_code) == (1, 1)
    assert (
        missing.stderr
        == "nowhere.jsonl cannot be read: No such file or directory.\nGive the path of a file.\n"
    )
    assert other.stderr == (
        "note.json is not an export: its first line is not that of a conversation.\n"
        "Give a file written by `frameledger export CONTEXT -o FILE`.\n"
    )


def test_who_asks_a_model_without_naming_one_is_told_both_ways_to_name_it(command):
    said = command("infer", "Hello?").stderr
    assert "FRAMELEDGER_INFERENCE_PROVIDER" in said
    assert "--provider" in said


@pytest.mark.regression("journey 61")
@pytest.mark.parametrize(
    ("typed", "answer"), [("42", "42"), (" true\n", "true"), ("null", "null"), ('"Hello?"', "Hello?")]
)
def test_text_that_is_json_by_chance_is_asked_as_text(command, typed, answer):
    said = command("infer", "--provider", "scripted", typed=typed)
    assert (said.exit_code, said.stdout) == (0, f"You said: {answer}\n"), said.output


@pytest.mark.regression("journey 61")
@pytest.mark.parametrize(
    ("typed", "problem"),
    [
        ("[" * 100_000, "levels deep"),
        ("[" * 600 + "]" * 600, "levels deep"),
        ("{}", "no message"),
        ('" "', "no message"),
    ],
    ids=["open", "deep", "object", "blank"],
)
def test_what_is_no_context_and_no_text_is_a_wrong_input(command, typed, problem):
    said = command("infer", "--provider", "scripted", typed=typed)
    assert said.exit_code == 2
    assert problem in said.stderr


def test_who_revokes_a_token_that_is_not_there_is_led_to_those_that_are(command):
    assert "`frameledger token list`" in command("token", "revoke", "nope").stderr


def test_a_price_list_that_is_none_leads_to_the_form_of_one(command, tmp_path):
    (tmp_path / "prices.json").write_text("[]", encoding="utf-8")
    (tmp_path / "deep.toml").write_text("a = " + "[" * 100_000, encoding="utf-8")
    for file in ("prices.json", "nowhere.toml", "deep.toml"):
        said = command("rerun", "ctx", "--prices", file)
        assert said.exit_code == 1
        assert file in said.stderr
        assert "`frameledger rerun --help`" in said.stderr


def usages(command, name):
    """How a command is called, and each of its own commands, on a line each."""
    yield command.get_usage(Context(command, info_name=name))
    for inner, one in getattr(command, "commands", {}).items():
        yield from usages(one, f"{name} {inner}")


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_no_argument_is_shown_in_brackets_twice(name):
    for usage in usages(imported(name, COMMANDS), name):
        assert usage.startswith(f"Usage: {name}")
        assert "[[" not in usage
        assert "......" not in usage


def shown_types(command, name):
    """What the help of a command and of its own commands shows as the types of their arguments and options."""
    for parameter in command.params:
        yield parameter.display_type_rich(Context(command, info_name=name))
    for inner, one in getattr(command, "commands", {}).items():
        yield from shown_types(one, f"{name} {inner}")


@pytest.mark.regression("journey 34")
@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_no_type_of_the_code_is_shown_in_help(name):
    assert [one for one in shown_types(imported(name, COMMANDS), name) if re.search("<.*[A-Z]", one)] == []
