"""`frameledger demo` as a person runs it, and that it would notice if SQL were wrong."""

import asyncio
import itertools
import re
import signal
from pathlib import Path

import psycopg
import pytest
from tests.integration.test_embedded_up import DEADLINE, Folder
from tests.integration.test_projector import make_topics, projecting

from frameledger.frames import TranscriptionFrame
from frameledger_services.client import Client
from frameledger_services.client.connections import connect
from frameledger_services.demo import playing, proof, recording
from frameledger_services.settings import Settings

README = Path(__file__).resolve().parents[2] / "README.md"
QUICKLY = ("demo", "--speed", "20")
_prefixes = itertools.count(1)


@pytest.fixture
def folder(tmp_path):
    made = Folder(tmp_path)
    yield made
    made.run("down")
    assert made.living() == []


def test_it_shows_what_the_readme_says_leaves_nothing_running_and_works_again_at_once(folder):
    shown = [folder.run(*QUICKLY) for _ in range(2)]
    for one in shown:
        assert one.returncode == 0, one.stdout + one.stderr
        assert "Right. At each of 205 versions" in one.stdout
        assert "\x1b" not in one.stdout
        assert folder.living() == []
    first, second = (re.search(r"demo-[0-9a-f]{6}", one.stdout)[0] for one in shown)
    assert first != second

    printed = [without_chance(line) for line in shown[0].stdout.splitlines()]
    promised = [without_chance(line) for line in block_of_the_readme()]
    assert len(promised) > 10
    assert [line for line in promised if line not in printed] == []


def test_it_uses_what_runs_already_and_leaves_it_running(folder):
    assert folder.run("up", "--detach").returncode == 0
    before = folder.processes()
    shown = folder.run(*QUICKLY)
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert "of the running `frameledger up`" in shown.stdout
    assert {name: one["pid"] for name, one in folder.processes().items()} == {
        name: one["pid"] for name, one in before.items()
    }


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_the_middle_stops_everything_and_says_where_the_time_went(folder, number):
    demo = folder.start("demo")
    shown = list(
        itertools.takewhile(lambda line: "Half past ten" not in line, iter(demo.stdout.readline, ""))
    )
    assert demo.poll() is None, "".join(shown)
    demo.send_signal(number)
    rest, _ = demo.communicate(timeout=DEADLINE)
    assert demo.returncode == 1
    assert re.search(r"Where the time went: servers .* s, conversation .* s", rest)
    assert "Traceback" not in rest
    assert folder.living() == []


def test_what_keeps_it_from_starting_is_said_with_exit_code_1(tmp_path):
    shown = Folder(tmp_path, FRAMELEDGER_JAVA="no java").run(*QUICKLY)
    assert shown.returncode == 1
    assert "There is no Java at no java" in shown.stderr
    assert "Where the time went: servers" in shown.stderr
    assert "Traceback" not in shown.stderr


def test_every_difference_between_sql_and_the_fold_is_found(kafka, database):
    settings = Settings(
        kafka_bootstrap_servers=kafka.bootstrap_servers,
        database_url=database,
        topic_prefix=f"demo{next(_prefixes)}.",
        topic_partitions=4,
    )
    asyncio.run(find_differences(settings))


async def find_differences(settings):
    await make_topics(settings)
    cues = recording.cues("demo-a")
    async with projecting(settings), Client(settings) as client, await connect(settings) as connection:
        played = await playing.play(client, connection, "demo-a", cues, speed=100, show=lambda _: None)
        published, stored = list(played.published), [seen.frame for seen in played.seen]

        async def found():
            return {
                (one.version, one.about)
                for one in await proof.differences(connection, "demo-a", published, stored)
            }

        assert await found() == set()

        # A frame that says something else than the one that is stored.
        place = next(i for i, frame in enumerate(published) if isinstance(frame, TranscriptionFrame))
        published[place] = published[place].model_copy(update={"text": "Are we early?"})
        changed = await found()
        assert (place + 1, "bytes") in changed
        assert (place + 1, "context") not in changed
        # Its turn is not closed yet; when it is, a message says it, until the history is replaced.
        assert {version for version, about in changed if about == "context"} == set(range(27, 190))
        published[place] = played.published[place]

        # One version too few, and one too many.
        last = published.pop()
        assert await found() == {(204, "context"), (0, "number of frames")}
        published.append(last)
        published.append(last.model_copy(update={"id": "5d0b1c34-0000-4000-8000-000000000000"}))
        assert await found() == {(205, "context"), (0, "number of frames")}
        published.pop()

        # A context that was written wrongly.
        with psycopg.connect(settings.database_url.get_secret_value()) as other:
            other.execute(
                'UPDATE messages SET message = \'{"role": "user", "content": true}\' '
                "WHERE context_id = 'demo-a' AND role = 'assistant' AND valid_from = 19"
            )
        assert await found() == {(version, "context") for version in range(19, 190)}


def block_of_the_readme():
    """The lines below `make demo` in the README, without those that stand for what was left out."""
    text = README.read_text(encoding="utf-8")
    block = re.search(r"^\$ make demo\n(.*?)^(?:```|\$ )", text, re.MULTILINE | re.DOTALL)[1]
    return [line for line in block.splitlines() if line and line.strip() != "..."]


def without_chance(line):
    """The line without what differs from run to run: the context's name, ports, durations and times."""
    for pattern, word in (
        (r"demo-[0-9a-f]{6}", "demo-..."),
        (r"127\.0\.0\.1:\d+", "address"),
        (r"[\d.]+ (ms|s)\b", r"some \1"),
        (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "time"),
    ):
        line = re.sub(pattern, word, line)
    return line.rstrip()
