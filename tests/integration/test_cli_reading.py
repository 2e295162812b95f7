"""`show`, `transcript`, `parked`, `unpark`, `sql` and `dlq list|show` on a database that holds every history."""

import base64
import json
import os
import re
import shlex
import subprocess
import sys

import psycopg
import pytest
from tests.bounds import ON_SERVERS
from tests.support.batches import (
    HISTORIES,
    Log,
    database_of_histories,  # noqa: F401  # a fixture
    folded,
    project,
)
from tests.support.tiers import every

from frameledger.frames import (
    FunctionCallFromLLM,
    FunctionCallsStartedFrame,
    LLMMessagesAppendFrame,
    LLMRunFrame,
    encode_frame,
)
from frameledger_services.cli.terminal.output import WIDTH_OF_A_FILE
from frameledger_services.cli.terminal.render_context import LAST, LONG
from frameledger_services.projector import batch_fold

HOSTILE = "\x1b[2Jclear\u202e"
BARGE_IN = next(path for path in HISTORIES if path.stem == "barge-in")


def succeeded(result):
    assert result.exit_code == 0, result.output
    return result.stdout


def refused(result, *words):
    assert result.exit_code == 1, result.output
    for word in words:
        assert word in result.stderr
    return result.stderr


@pytest.mark.parametrize("path", every(3, HISTORIES[::4]), ids=lambda path: path.stem)
def test_show_gives_the_context_at_every_version(filled, command, path):
    contexts, _ = folded(path)
    for version in {0, 1, len(contexts) // 2, len(contexts) - 1}:
        shown = json.loads(succeeded(command(filled, "show", path.stem, "--at", version, "--json")))
        assert (shown["version"], shown["newest"]) == (version, len(contexts) - 1)
        assert {name: shown[name] for name in contexts[version]} == contexts[version]


def test_show_without_a_moment_is_the_context_now_for_people(filled, command):
    page = succeeded(command(filled, "show", BARGE_IN.stem))
    contexts, _ = folded(BARGE_IN)
    assert page.startswith(f"{BARGE_IN.stem} at version {len(contexts) - 1}: ")
    for message in contexts[-1]["messages"]:
        if isinstance(message.get("content"), str):
            assert message["content"][:20] in " ".join(page.split())


def test_a_time_names_the_version_that_was_there_by_then(filled, command):
    with psycopg.connect(filled) as connection:
        row = connection.execute(
            "SELECT version, logged_at FROM frames WHERE context_id = %s AND version = 5", (BARGE_IN.stem,)
        ).fetchone()
    zulu = row[1].isoformat().replace("+00:00", "Z")
    for written in (row[1].isoformat(), zulu, zulu.lower(), zulu.replace("T", " ")):
        shown = json.loads(succeeded(command(filled, "show", BARGE_IN.stem, "--at", written, "--json")))
        assert shown["version"] == 5
    shown = json.loads(succeeded(command(filled, "show", BARGE_IN.stem, "--at", "1999-01-01", "--json")))
    assert (shown["version"], shown["messages"]) == (0, [])


def test_what_is_not_there_is_said_with_what_to_do(filled, command):
    for name in ("show", "transcript"):
        refused(command(filled, name, "nobody"), "no context 'nobody'", "frameledger list")
        refused(command(filled, name, BARGE_IN.stem, "--at", 10**6), "no version 1000000", "It has 0 to")
        assert command(filled, name, BARGE_IN.stem, "--at", "yesterday").exit_code == 2
    for words in (["calls", "list"], ["export"]):
        refused(command(filled, *words, "nobody"), "no context 'nobody'", "frameledger list")
    refused(command(filled, "unpark", "nobody"), "not parked", "frameledger parked")
    refused(command(filled, "dlq", "show", "0:99"), "There is no dead letter", "dlq list")
    assert command(filled, "dlq", "show", "here").exit_code == 2


@pytest.mark.regression("journey 117")
@pytest.mark.parametrize("words", [["nobody"], ["--context", "nobody", "--since", "2020-01-01"]])
def test_all_runs_of_a_conversation_that_is_not_there_pass_no_check(filled, command, tmp_path, words):
    report = tmp_path / "report.json"
    rerun = ("rerun", *words, "--all-runs", "--check", "--provider", "scripted", "--report", report)
    refused(command(filled, *rerun), "no context 'nobody'", "frameledger list")
    assert not list(tmp_path.glob("report*"))


@pytest.mark.regression("journey 118")
def test_a_call_that_cannot_be_settled_is_said_to_be_what_it_is(filled, command):
    newest = """
        SELECT DISTINCT ON (context_id, tool_call_id)
            CASE WHEN resolved_version IS NULL THEN status ELSE 'resolved' END, context_id, tool_call_id
        FROM tool_calls ORDER BY context_id, tool_call_id, requested_version DESC
    """
    with psycopg.connect(filled) as connection:
        calls = {status: ids for status, *ids in connection.execute(newest)}

    def refusal(does, *ids):
        return command(filled, "calls", does, *ids, "--result", "1")

    answer, resolve = (
        f"frameledger calls {does} {shlex.join(calls[status])} --result JSON"
        for does, status in (("answer", "waiting"), ("resolve", "ambiguous"))
    )
    refused(refusal("resolve", *calls["waiting"]), "is waiting.", f"Answer it with: {answer}\n")
    refused(refusal("answer", *calls["ambiguous"]), "is ambiguous.", f"Resolve it with: {resolve}\n")
    for status in ("done", "failed", "resolved", "cancelled"):
        settled = refusal("answer", *calls[status])
        refused(
            settled, f"is settled already: it is {status}.", f"frameledger transcript {calls[status][0]}`"
        )
    refused(refusal("answer", BARGE_IN.stem, "c-9"), f"'{BARGE_IN.stem}' has no call 'c-9'.", "calls list")
    refused(refusal("answer", "nobody", "c-9"), "no context 'nobody'", "frameledger list")


@pytest.mark.regression("journey 118")
def test_a_call_that_has_not_ended_needs_no_person(database, command):
    log = Log()
    call = FunctionCallFromLLM(function_name="book", tool_call_id="c-1", arguments={})
    log.add("ctx", encode_frame(FunctionCallsStartedFrame(function_calls=[call])))
    project(database, log.records)
    said = command(database, "calls", "answer", "ctx", "c-1", "--result", "1")
    refused(said, "c-1 is announced: its function has not ended", "frameledger calls list")


def project_barge_in(database):
    """Fill a database with this one conversation."""
    log = Log()
    for value in BARGE_IN.read_bytes().splitlines():
        log.add(BARGE_IN.stem, value)
    project(database, log.records)


def test_a_version_of_a_life_that_was_erased_is_not_there(database, command):
    project_barge_in(database)
    with psycopg.connect(database) as connection:
        connection.execute("SET session_replication_role = replica")
        connection.execute("DELETE FROM frames WHERE version <= 5")
        connection.execute("DELETE FROM messages WHERE valid_from <= 5")
    for words in (
        ("show", BARGE_IN.stem, "--at", 3),
        ("diff", BARGE_IN.stem, 3, 12),
        ("why", BARGE_IN.stem, 2, "--at", 3),
    ):
        refused(command(database, *words), "no version 3", "It has 5 to 22. Earlier versions were erased.")
    entries = [
        json.loads(line)
        for line in succeeded(command(database, "timeline", BARGE_IN.stem, "--json")).splitlines()
    ]
    assert entries[0]["version"] == 6
    assert "+    3  assistant" in succeeded(command(database, "diff", BARGE_IN.stem, 5, 12))


@pytest.mark.regression("journey 82")
@pytest.mark.regression("journey 86")
def test_a_conversation_that_was_erased_is_said_to_be_erased(database, command):
    project_barge_in(database)
    with psycopg.connect(database) as connection:
        connection.execute("SELECT erase(%s, %s)", (BARGE_IN.stem, f"request 17 {HOSTILE}"))
    reads = (("show",), ("why", 2), ("diff", 3, 12), ("tail",), ("export",), ("export", "--format", "openai"))
    for name, *rest in reads:
        told = refused(
            command(database, name, BARGE_IN.stem, *rest),
            "was erased at version ",
            "request 17",
            "table erasures",
        )
        assert "\x1b" not in told
        assert "\u202e" not in told


def test_what_is_printed_of_frames_and_runs_leads_to_their_traces(database, command, monkeypatch):
    project_barge_in(database)
    first, second = "a" * 32, "b" * 32
    with psycopg.connect(database) as connection:
        connection.execute("SET session_replication_role = replica")
        connection.execute(
            "UPDATE frames SET trace_id = CASE WHEN version < 10 THEN %s ELSE %s END WHERE version > 1",
            (first, second),
        )
        runs = connection.execute("SELECT requested_version FROM runs ORDER BY 1").fetchall()
    name = BARGE_IN.stem
    without = {words: succeeded(command(database, *words)) for words in (("timeline", name), ("runs", name))}
    monkeypatch.setenv("FRAMELEDGER_TRACE_URL", "https://traces.example/{trace_id}?tab=1")
    for words, before in without.items():
        lines = succeeded(command(database, *words)).splitlines()
        addresses = [line for line in lines if "traces.example" in line]
        assert [line for line in lines if line not in addresses] == before.splitlines()
        expected = (
            [first, second]
            if words[0] == "timeline"
            else [first if version < 10 else second for (version,) in runs if version > 1]
        )
        assert [line.strip() for line in addresses] == [
            f"https://traces.example/{one}?tab=1" for one in expected
        ]
    lines = succeeded(command(database, "timeline", name)).splitlines()
    assert lines[[first in line for line in lines].index(True) - 1].split()[0] == "2"
    assert succeeded(command(database, "why", name, 2)).rstrip().endswith("?tab=1")


def test_a_database_that_is_away_or_empty_is_said(empty_database, command):
    refused(command(empty_database, "show", "ctx"), "frameledger migrate")
    assert command(empty_database, "doctor").stdout.count("frameledger migrate") == 1
    refused(command("postgresql://localhost:1/none?connect_timeout=2", "parked"), "localhost")


@pytest.mark.regression("journey 27")
def test_a_transcript_has_who_said_what_and_what_no_run_has_seen(database, command):
    log = Log()
    for content in ("Hi", "there"):
        frame = LLMMessagesAppendFrame(
            messages=[{"role": "user", "content": content}], run_llm=content == "Hi"
        )
        log.add("ctx", encode_frame(frame))
    project(database, log.records)
    lines = [
        json.loads(line) for line in succeeded(command(database, "transcript", "ctx", "--json")).splitlines()
    ]
    assert [(line["version"], line["who"], line["text"], line["new"]) for line in lines] == [
        (1, "user", "Hi", False),
        (2, "user", "there", True),
    ]
    page = succeeded(command(database, "transcript", "ctx")).splitlines()
    assert [line.split() for line in page[1:]] == [
        ["02:40:00Z", "user", "Hi"],
        ["02:40:00Z", "user", "*", "there"],
    ]
    earlier = succeeded(command(database, "transcript", "ctx", "--at", 1, "--json")).splitlines()
    assert len(earlier) == 1


def test_of_a_long_context_only_the_last_messages_are_shown(database, command):
    log = Log()
    messages = [{"role": "user", "content": f"word-{number}"} for number in range(LONG + 1)]
    log.add("ctx", encode_frame(LLMMessagesAppendFrame(messages=messages)))
    project(database, log.records)
    for name in ("show", "transcript"):
        assert succeeded(command(database, name, "ctx")).count("word-") == LAST
        assert succeeded(command(database, name, "ctx", "--all")).count("word-") == LONG + 1


def test_no_message_can_control_the_terminal_or_fail_the_command(database, command):
    log = Log()
    hostile = [{"role": HOSTILE, "content": HOSTILE + "\x00"}]
    log.add("ctx", encode_frame(LLMMessagesAppendFrame(messages=hostile)))
    log.add("ctx", b'{"type":"LLMMessagesAppendFrame","messages":[{"role":"user","content":"half \\ud83d"}]}')
    log.add(b"\xff" + HOSTILE.encode(), HOSTILE.encode() + b"\x00\xff")
    log.add("ctx", HOSTILE.encode())
    project(database, log.records)
    rejected = json.loads(succeeded(command(database, "dlq", "list", "--json")).splitlines()[0])
    for words in (
        ("show", "ctx"),
        ("show", "ctx", "--json"),
        ("transcript", "ctx"),
        ("dlq", "list"),
        ("dlq", "show", rejected["where"]),
    ):
        printed = succeeded(command(database, *words))
        assert not {"\x1b", "\x00", "\u202e"} & set(printed), words


@pytest.mark.regression("journey 53")
@pytest.mark.parametrize(
    "text", ["see [/b] and arr[/tmp]", "100% [link=http://x]a_b\\c", ":smile: [red]x[/red]"]
)
def test_brackets_in_a_message_are_listed_and_found_as_they_were_said(database, command, text):
    log = Log()
    log.add("ctx", encode_frame(LLMMessagesAppendFrame(messages=[{"role": text, "content": text}])))
    log.add("ctx", encode_frame(LLMMessagesAppendFrame(messages=[{"role": "user", "content": text}])))
    project(database, log.records)
    assert text in succeeded(command(database, "list"))
    assert succeeded(command(database, "search", text)).count(text) == 3


def test_parked_lists_them_and_unpark_folds_them(database, command, monkeypatch):
    def failing(state, frame, *others):
        raise ValueError("cannot fold")

    assert "No conversation" in succeeded(command(database, "parked"))
    log = Log()
    for _ in range(3):
        log.add("ctx", encode_frame(LLMRunFrame()))
    with monkeypatch.context() as broken:
        broken.setattr(batch_fold, "evolve", failing)
        project(database, log.records)
    (line,) = succeeded(command(database, "parked", "--json")).splitlines()
    listed = json.loads(line)
    assert (listed["context_id"], listed["since"], listed["waiting"]) == ("ctx", 1, 3)
    assert "cannot fold" in succeeded(command(database, "parked"))
    assert "parked" in succeeded(command(database, "show", "ctx"))

    result = command(database, "unpark", "ctx", "--why", "mended", "--json")
    done = json.loads(succeeded(result))
    assert (done["folded"], done["parked_since"], done["error"]) == (3, None, None)
    # There is no broker here: what follows waits, and that is said.
    assert done["published"] == 1
    assert "outbox" in result.stderr
    assert "No conversation" in succeeded(command(database, "parked"))
    refused(command(database, "unpark", "ctx"), "not parked")


@pytest.mark.regression("journey 124")
def test_unpark_names_the_command_that_folds_a_state_again_that_cannot_be_read(database, command):
    log = Log()
    log.add("ctx 1", encode_frame(LLMRunFrame()))
    project(database, log.records)
    with psycopg.connect(database) as connection:
        connection.execute("UPDATE contexts SET state = '{}'")
    log.add("ctx 1", encode_frame(LLMRunFrame()))
    project(database, log.records[1:])
    said = refused(command(database, "unpark", "ctx 1"), "The conversation 'ctx 1' cannot be unparked: ")
    rebuild = re.search("Run `frameledger (.+?)`, and then this command again", said)[1]
    succeeded(command(database, *shlex.split(rebuild)))
    assert "Folded 1 frame of ctx 1" in succeeded(command(database, "unpark", "ctx 1"))


def test_a_dead_letter_is_shown_to_the_byte(database, command):
    log = Log()
    values = [b"no frame", b"\x00\xff binary", b'{"type":"LLMTextFrame"}']
    for value in values:
        log.add("ctx", value, headers=(("trace", b"\xfe"), ("who", b"me")))
    project(database, log.records)
    listed = [json.loads(line) for line in succeeded(command(database, "dlq", "list", "--json")).splitlines()]
    assert [one["bytes"] for one in reversed(listed)] == [len(value) for value in values]
    for one, value in zip(reversed(listed), values, strict=True):
        whole = json.loads(succeeded(command(database, "dlq", "show", one["where"], "--json")))
        assert base64.b64decode(whole["value_base64"]) == value
        assert command(database, "dlq", "show", one["where"], "--raw").stdout_bytes == value
    page = succeeded(command(database, "dlq", "show", listed[1]["where"]))
    assert "00 ff 20 62" in page
    assert "trace: hex fe" in page


def test_list_has_every_conversation_the_last_active_first_page_by_page(filled, command):
    whole = [
        json.loads(line) for line in succeeded(command(filled, "list", "-n", 1000, "--json")).splitlines()
    ]
    assert {one["context_id"] for one in whole} == {path.stem for path in HISTORIES}
    assert [one["last_at"] for one in whole] == sorted((one["last_at"] for one in whole), reverse=True)
    pages = [
        json.loads(line)
        for skip in range(0, len(whole), 5)
        for line in succeeded(command(filled, "list", "-n", 5, "--skip", skip, "--json")).splitlines()
    ]
    assert pages == whole
    with psycopg.connect(filled) as connection:
        statuses = connection.execute("SELECT context_id, status FROM conversations").fetchall()
    assert {(one["context_id"], one["status"]) for one in whole} == set(statuses)


@pytest.mark.regression("journey 56")
def test_list_shows_a_line_for_each_within_the_width_and_how_to_go_on(filled, command):
    page = succeeded(command(filled, "list", "-n", 3)).splitlines()
    assert page[0].split()[:2] == ["last", "frame"]
    assert len(page) == 5
    assert max(map(len, page)) <= WIDTH_OF_A_FILE
    assert page[-1] == "More: frameledger list --limit 3 --skip 3"
    page = succeeded(command(filled, "list", "-n", 3, "--experiments")).splitlines()
    assert page[-1] == "More: frameledger list --limit 3 --skip 3 --experiments"
    assert succeeded(command(filled, "list", "--skip", 1000)) == "There are no more than 1000.\n"


@pytest.mark.parametrize("text", ["Ferry", "HARBOUR", "%", "_", "nobody ever said that"])
@pytest.mark.parametrize("words", [(), ("--all",)])
def test_search_finds_what_was_said_letter_by_letter_in_any_case(filled, command, text, words):
    found = [
        json.loads(line)
        for line in succeeded(command(filled, "search", text, "-n", 1000, "--json", *words)).splitlines()
    ]
    with psycopg.connect(filled) as connection:
        said = connection.execute(
            "SELECT m.context_id, m.valid_from, m.text, m.valid_to = 9223372036854775807 AND m.era = head.era"
            " FROM messages AS m INNER JOIN contexts AS head USING (context_id) WHERE m.text IS NOT NULL"
        ).fetchall()
    assert {(one["context_id"], one["version"], one["text"], one["current"]) for one in found} == {
        row for row in said if text.lower() in row[2].lower() and (row[3] or words)
    }


@pytest.mark.regression("journey 56")
def test_search_shows_the_place_in_a_message_and_how_to_see_more(filled, command):
    page = succeeded(command(filled, "search", "the", "-n", 2)).splitlines()
    assert len(page) == 4
    assert all("the" in line.lower() for line in page[1:3])
    assert max(map(len, page)) <= WIDTH_OF_A_FILE
    assert page[-1] == "There are more: frameledger search the --limit 20"
    page = succeeded(command(filled, "search", "the", "-n", 2, "--all", "--experiments")).splitlines()
    assert page[-1] == "There are more: frameledger search the --limit 20 --all --experiments"
    assert command(filled, "search", " ").exit_code == 2


def test_erase_asks_first_and_knows_what_is_not_there(filled, command):
    words = ("erase", "barge-in", "--why", "request 17")
    refused(command(filled, *words), "Nothing was changed", "--yes")
    refused(command(filled, "erase", "nobody", "--why", "x", "--yes"), "frameledger list", "--force")
    assert command(filled, "erase", "barge-in", "--why", " ", "--yes").exit_code == 2


def test_sql_is_psql_with_the_address_out_of_sight(filled, tmp_path):
    environment = {**os.environ, "FRAMELEDGER_DATABASE_URL": filled, "FRAMELEDGER_DATA_DIR": str(tmp_path)}
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "frameledger_services",
            "sql",
            "-X",
            "-At",
            "-c",
            "SELECT count(*) FROM contexts",
        ],
        env=environment,
        capture_output=True,
        text=True,
        timeout=ON_SERVERS,
        check=False,
    )
    assert (done.stdout.strip(), done.returncode) == (str(len(HISTORIES)), 0), done.stderr
