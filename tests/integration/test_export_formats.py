"""Exports for other programs, by the command: CloudEvents, the chat completions API, Parquet."""

import json
import os
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from openai.types.chat import CompletionCreateParams
from pydantic import TypeAdapter
from tests.support.batches import Log, histories_interleaved, project, value_of
from typer.testing import CliRunner

from frameledger_services.cli import application
from frameledger_services.store.contexts import NoSuchContextError


@pytest.fixture(name="run")
def commands(database, monkeypatch):
    """Runs the command line on a database that has the recorded histories."""
    log = Log()
    for one in histories_interleaved():
        log.add(one.key, one.value, headers=one.headers)
    project(database, log.records)
    monkeypatch.setenv("FRAMELEDGER_DATABASE_URL", database)
    return lambda *arguments: CliRunner().invoke(application(), arguments)


def test_all_conversations_come_along_and_are_here_already(run, tmp_path, database):
    path = tmp_path / "all.jsonl"
    told = run("export", "--all", "-o", str(path), "--json")
    assert told.exit_code == 0, told.output
    with psycopg.connect(database) as connection:
        count = value_of(connection, "SELECT count(*) FROM contexts")
        frames = value_of(connection, "SELECT sum(version)::int8 FROM contexts")
    assert json.loads(told.stdout) == {
        "format": "jsonl",
        "conversations": count,
        "frames": frames,
        "bytes": path.stat().st_size,
        "file": str(path),
        "left_out": [],
    }
    again = run("import", str(path), "--json")
    assert json.loads(again.stdout)["there_already"] == count
    assert "already imported" in run("import", str(path)).stdout
    assert run("export", "--all", "--since", "2100-01-01").stdout == ""
    path.write_bytes(path.read_bytes().replace(b"LLMRunFrame", b"LLMRumFrame", 1))
    refused = run("import", str(path))
    assert refused.exit_code == 1
    assert "it was changed" in refused.stderr


@pytest.mark.regression("journey 35", "journey 42")
def test_what_lives_again_after_an_erasure_is_left_out_of_all_and_named(database, monkeypatch, tmp_path):
    log = Log()
    for context_id in "abc":
        log.add(context_id, b'{"type":"LLMRunFrame"}')
    project(database, log.records)
    with psycopg.connect(database) as operator:
        operator.execute("SELECT erase('b', 'asked')")
    before = len(log.records)
    log.add("b", b'{"type":"LLMRunFrame"}')
    project(database, log.records[before:])
    monkeypatch.setenv("FRAMELEDGER_DATABASE_URL", database)
    path = tmp_path / "all.jsonl"
    told = CliRunner().invoke(application(), ["export", "--all", "-o", str(path), "--json"])
    # A script that makes backups notices by the exit code that one is left out.
    assert told.exit_code == 1, told.output
    done = json.loads(told.stdout)
    assert (done["conversations"], done["frames"], done["left_out"]) == (2, 2, ["b"])
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    assert [line["context_id"] for line in lines if "context_id" in line] == ["a", "c"]
    told = CliRunner().invoke(application(), ["export", "--all"])
    assert told.stdout_bytes == path.read_bytes()
    assert "1 conversation was left out, because it continues after an erasure: b" in told.stderr
    assert "frameledger fork" in told.stderr
    named = CliRunner().invoke(application(), ["export", "a", "b"])
    assert named.exit_code == 1
    assert "'b' begins at version 2" in named.stderr
    other = CliRunner().invoke(application(), ["export", "--all", "--format", "cloudevents"])
    assert len(json.loads(other.stdout)) == 3


@pytest.mark.regression("journey 88")
@pytest.mark.parametrize("form", ["cloudevents", "openai", "parquet"])
def test_frames_of_an_erased_life_are_in_no_file_and_not_counted(database, monkeypatch, tmp_path, form):
    log = Log()
    for _ in range(3):
        log.add("a", b'{"type":"LLMRunFrame"}')
    log.add("a", b'{"type":"LLMContextEraseFrame","why":"asked"}')
    for _ in range(2):
        log.add("a", b'{"type":"LLMRunFrame"}')
    project(database, log.records)
    monkeypatch.setenv("FRAMELEDGER_DATABASE_URL", database)
    words = ["export", "a", "--format", form, "-o", str(tmp_path / "out"), "--json"]
    told = CliRunner().invoke(application(), words)
    assert told.exit_code == 0, told.output
    assert json.loads(told.stdout)["frames"] == 2


@pytest.mark.long
@pytest.mark.regression("journey 89")
@pytest.mark.parametrize("time", ["0001-01-01T00:00+01:00", "9999-12-31T23:59:59-01:00"])
def test_the_edges_of_time_are_times(run, time, tmp_path):
    told = run("export", "--all", "--since", time, "-o", str(tmp_path / "x"), "--json")
    assert told.exit_code == 0, told.output
    assert (json.loads(told.stdout)["conversations"] > 0) == time.startswith("0001")


@pytest.mark.regression("journey 89")
@pytest.mark.parametrize("command", ["import", "verify"])
def test_a_file_that_is_read_twice_is_no_pipe(run, command, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    told = run(command, str(tmp_path / "pipe"))
    assert told.exit_code in (1, 2)
    assert "is read more than once" in " ".join(told.stderr.replace("│", "").split())


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "give ids of conversations, or --all"),
        (["a", "--all"], "give ids of conversations, or --all"),
        (["a", "--since", "2026-01-01"], "use it with --all"),
        (["a", "--json"], "use it with -o FILE"),
        (["a", "--at", "3"], "use it with --format openai"),
        (["a", "b", "--format", "openai"], "the format openai exports a single"),
        (["a", "--format", "parquet"], "parquet needs a folder"),
    ],
)
def test_what_is_asked_wrongly_is_said(arguments, problem):
    told = CliRunner().invoke(application(), ["export", *arguments])
    assert told.exit_code == 2
    assert problem in told.stderr.replace("\n", " ")


@pytest.mark.long
@pytest.mark.regression("journey 59")
def test_a_conversation_that_is_named_twice_is_exported_once(run):
    for form in ("jsonl", "cloudevents", "openai"):
        told = run("export", "barge-in", "barge-in", "--format", form)
        assert told.exit_code == 0, told.output
        assert told.stdout_bytes == run("export", "barge-in", "--format", form).stdout_bytes


@pytest.mark.long
def test_a_conversation_that_is_not_there_leaves_no_file(run, tmp_path):
    told = run("export", "nobody", "-o", str(tmp_path / "x"))
    assert told.exit_code == 1
    assert str(NoSuchContextError("nobody")) in told.stderr
    assert "`frameledger list`" in told.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
@pytest.mark.regression("journey 36")
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a file that is always full")
def test_an_export_that_cannot_be_written_says_where_and_why(run, tmp_path):
    (tmp_path / "file").touch()
    told = run("export", "--all", "--format", "parquet", "-o", str(tmp_path / "file"))
    assert told.exit_code == 1
    assert told.stderr.startswith(f"{tmp_path / 'file'} cannot be written: File exists.\n")
    script = 'exec "$0" -m frameledger_services export --all >/dev/full'
    ran = subprocess.run(["sh", "-c", script, sys.executable], stderr=subprocess.PIPE, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (1, "The output cannot be written: No space left on device.\n")


@pytest.mark.regression("fault 163")
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a file that is always full")
@pytest.mark.parametrize("full", ["frames", "calls"])
def test_a_full_disk_leaves_no_part_of_parquet_files(tmp_path, monkeypatch, full):
    pytest.importorskip("pyarrow.parquet")
    from frameledger_services import unfinished_file
    from frameledger_services.transfer.parquet import Parquet

    monkeypatch.setattr(unfinished_file, "token_hex", lambda _: "0")
    (tmp_path / f"{full}.parquet.0.part").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left"), Parquet(None, tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.regression("fault 238")
def test_parquet_files_that_two_exports_write_at_once_are_whole(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    from frameledger_services.transfer.parquet import FILES, Parquet

    with Parquet(None, tmp_path):
        with Parquet(None, tmp_path):
            pass
        assert all(parquet.read_table(tmp_path / f"{name}.parquet").num_rows == 0 for name in FILES)
    assert sorted(one.name for one in tmp_path.iterdir()) == sorted(f"{name}.parquet" for name in FILES)


@pytest.mark.regression("fault 290")
@pytest.mark.parametrize("renamed", [0, 1, 3])
def test_parquet_files_of_two_exports_never_stand_side_by_side(tmp_path, monkeypatch, renamed):
    pytest.importorskip("pyarrow.parquet")
    from frameledger_services.transfer.parquet import FILES, Parquet

    with Parquet(None, tmp_path):
        pass
    steps = []
    rename = Path.replace

    def dying(path, target):
        steps.append("rename")
        if steps.count("rename") > renamed:
            raise KeyboardInterrupt
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", lambda _: steps.append("sync"))
    monkeypatch.setattr(Path, "replace", dying)
    with pytest.raises(KeyboardInterrupt), Parquet(None, tmp_path):
        pass
    assert steps == ["sync"] * 4 + ["rename"] * (renamed + 1)
    assert {one.name for one in tmp_path.iterdir()} == {f"{name}.parquet" for name in [*FILES][:renamed]}


@pytest.mark.regression("fault 342")
def test_what_a_killed_export_left_of_parquet_files_is_deleted_by_the_next(tmp_path):
    pytest.importorskip("pyarrow.parquet")
    from frameledger_services.transfer.parquet import FILES, Parquet

    left = [tmp_path / f"{name}.parquet.0123abcd.part" for name in FILES]
    for one in left:
        one.touch()
    with Parquet(None, tmp_path):
        assert not any(one.exists() for one in left)
        with Parquet(None, tmp_path):
            pass
    assert {one.name for one in tmp_path.iterdir()} == {f"{name}.parquet" for name in FILES}


def test_events_of_a_conversation_are_its_frames(run, database):
    events = json.loads(run("export", "barge-in", "--format", "cloudevents").stdout)
    with psycopg.connect(database) as connection:
        rows = connection.execute(
            "SELECT frame_id::text, type, payload FROM frames WHERE context_id = 'barge-in' ORDER BY version"
        ).fetchall()
    assert [(one["id"], one["type"], one["data"]) for one in events] == rows
    assert {(one["specversion"], one["subject"]) for one in events} == {("1.0", "barge-in")}


def test_the_openai_form_is_what_the_chat_api_takes(run, database):
    parameters = TypeAdapter(CompletionCreateParams)
    with psycopg.connect(database) as connection:
        names = [name for (name,) in connection.execute("SELECT context_id FROM contexts").fetchall()]
    taken = 0
    for name in names:
        told = run("export", name, "--format", "openai")
        if told.exit_code:
            # The context has messages that only another provider understands, or that no API accepts.
            assert "openai" in told.stderr, told.stderr
            continue
        made = json.loads(told.stdout)
        assert made.keys() <= {"messages", "tools", "tool_choice"}
        parameters.validate_python({"model": "m", **made})
        taken += 1
    assert taken > len(names) / 2
    first = json.loads(run("export", "barge-in", "--format", "openai", "--at", "1").stdout)
    assert first["messages"][0]["role"] == "system"


def test_parquet_files_have_the_rows_and_duckdb_opens_them(run, database, tmp_path):
    duckdb = pytest.importorskip("duckdb")
    parquet = pytest.importorskip("pyarrow.parquet")
    folder = tmp_path / "parquet"
    told = run("export", "--all", "--format", "parquet", "-o", str(folder))
    assert told.exit_code == 0, told.output
    tables = {"frames": "frames", "messages": "messages", "runs": "runs", "calls": "tool_calls"}
    assert {path.name for path in folder.iterdir()} == {f"{name}.parquet" for name in tables}
    with psycopg.connect(database) as connection:
        for name, table in tables.items():
            read = parquet.read_table(folder / f"{name}.parquet")
            assert read.num_rows == value_of(connection, f"SELECT count(*) FROM {table}")
        texts = connection.execute(
            "SELECT context_id, version, payload::text, (extract(epoch FROM logged_at) * 1000000)::int8 "
            "FROM frames ORDER BY 1, 2"
        ).fetchall()
    asked = duckdb.sql(
        f"SELECT context_id, version, payload, epoch_us(logged_at) FROM '{folder}/frames.parquet' ORDER BY 1, 2"
    )
    assert asked.fetchall() == texts
    [(text,)] = duckdb.sql(f"SELECT max(length(text)) FROM '{folder}/messages.parquet'").fetchall()
    assert text > 10


@pytest.mark.long
def test_rows_are_written_in_groups_of_some_thousand(run, tmp_path, monkeypatch):
    parquet = pytest.importorskip("pyarrow.parquet")
    from frameledger_services.transfer import parquet as ours

    monkeypatch.setattr(ours, "ROWS_OF_A_GROUP", 300)
    assert run("export", "--all", "--format", "parquet", "-o", str(tmp_path)).exit_code == 0
    file = parquet.ParquetFile(tmp_path / "frames.parquet")
    sizes = [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)]
    assert len(sizes) > 2
    assert min(sizes[:-1]) >= 300
