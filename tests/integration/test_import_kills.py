"""`frameledger import` beside a projector, killed and frozen: at the end each conversation is there once, and whole."""

import json
import os
import signal

import psycopg
import pytest
from tests.support.batches import Log, project, value_of
from tests.support.commands import environment
from tests.support.killable import Plan, projector
from tests.support.killable_command import KillableCommand, Moment
from tests.support.parked_talks import said
from tests.support.pipeline import own_pipeline  # noqa: F401  # a fixture
from tests.support.transferring import exported, random_log

from frameledger_services import database
from frameledger_services.cli.transfer import import_files
from frameledger_services.transfer import importing
from frameledger_services.transfer.lines import lines_of

SESSIONS = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'frameledger import'"
NO_IMPORT = f"SELECT NOT EXISTS ({SESSIONS})"

IDLE_MS = 2_000
"""Longer than it takes to fold what it writes with one statement."""

LASTING = Plan(member="it", session_ms=30_000)


@pytest.fixture
def surroundings(pipeline, tmp_path):
    return {**os.environ, **environment(pipeline.settings), "FRAMELEDGER_DATA_DIR": str(tmp_path)}


def command_writes(address):
    """Whether an import is in a transaction."""
    with psycopg.connect(address) as connection:
        return value_of(connection, f"SELECT EXISTS ({SESSIONS} AND state = 'idle in transaction')")


def content_of(make_database, migrated_template, log):
    """Returns an export of the conversations of this log."""
    origin = make_database(template=migrated_template)
    project(origin, log.records)
    return exported(origin)


@pytest.fixture
def path(make_database, migrated_template, tmp_path):
    """The path of a file with random conversations."""
    file = tmp_path / "all.jsonl"
    file.write_bytes(content_of(make_database, migrated_template, random_log((1, 2, 4))[0]))
    return file


def freeze(pipeline, surroundings, path, after, staged_above=1_000):
    """Freeze an import in a conversation that begins on the topic at this moment, until a projector has stored it.
    Returns what the import then says."""
    first = json.loads(path.read_bytes().split(b"\n")[0])["context_id"]
    moment = Moment(2, after=after, signal=signal.SIGSTOP, idle_ms=IDLE_MS, staged_above=staged_above)
    with projector(pipeline.settings, LASTING) as running:
        with KillableCommand(["import", str(path)], surroundings, moment) as frozen:
            frozen.frozen()
            pipeline.publish([said(first, "meanwhile")])
            pipeline.until("SELECT EXISTS (SELECT FROM contexts WHERE version = 1)")
            frozen.send(signal.SIGCONT)
            assert frozen.ended() == 1
        assert running.stop() == 0
    pipeline.check()


@pytest.mark.regression("fault 338")
@pytest.mark.parametrize(
    ("after", "staged_above"),
    [('"frames"', 1_000), ('"messages"', 1_000), ('INSERT INTO "frames"', 0)],
    ids=["within the first frames", "within the first messages", "within the frames that were staged"],
)
def test_a_frozen_one_stops_no_projector(pipeline, surroundings, path, after, staged_above):
    freeze(pipeline, surroundings, path, after, staged_above)


@pytest.mark.regression("fault 339")
def test_one_that_is_frozen_while_it_sends_a_large_statement_stops_no_projector(
    pipeline, surroundings, make_database, migrated_template, tmp_path
):
    """More than the buffers of its socket hold: PostgreSQL waits for the rest."""
    log = Log()
    for _ in range(4):
        log.add("ctx", said("ctx", "x" * 5_000_000).value)
    path = tmp_path / "large.jsonl"
    path.write_bytes(content_of(make_database, migrated_template, log))
    freeze(pipeline, surroundings, path, '"frames"')


@pytest.mark.regression("fault 338")
def test_one_whose_file_stalls_is_ended_and_the_next_one_imports_the_rest(
    pipeline, command, path, monkeypatch
):
    monkeypatch.setitem(database.BESIDE_PROJECTORS, "idle_in_transaction_session_timeout", "100ms")
    stalled: list[bytes] = []

    def stalling(file):
        for line in lines_of(file):
            if command_writes(pipeline.address) and not stalled:
                stalled.append(line)
                pipeline.until(NO_IMPORT)
            yield line

    monkeypatch.setattr(importing, "PAGE_FRAMES", 5)
    monkeypatch.setattr(import_files, "lines_of", stalling)
    told = command(pipeline.settings, "import", path)
    assert told.exit_code == 1
    assert "a file that it reads, had stalled" in told.stderr
    assert "Run the command again" in told.stderr
    monkeypatch.undo()
    again = command(pipeline.settings, "import", path)
    assert again.exit_code == 0, again.output
    assert command(pipeline.settings, "verify", "--all").exit_code == 0
