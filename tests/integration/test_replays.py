"""Replays: the terminal output of a recorded history, and copies on real servers that cause no effects."""

import asyncio
import json
from datetime import UTC, datetime

import psycopg
import pytest
from tests.bounds import ON_SERVERS
from tests.support.batches import HISTORIES, Log, project
from tests.support.projecting import make_topics, projecting, settings_of_its_own  # noqa: F401  # a fixture
from tests.unit.rules.dsl import append, committed, result
from tests.unit.rules.test_client_functions import brought
from typer.testing import CliRunner

from frameledger import derived
from frameledger.frames import LLMContextFrame, LLMMessagesAppendFrame, encode_frame
from frameledger.headers import originally_logged_ms
from frameledger.ids import ContextId, Version
from frameledger_services.cli import application
from frameledger_services.cli.replay import copying, playback
from frameledger_services.client import Client, ForkRefusedError, Receipt
from frameledger_services.event_log.producer import Producer
from frameledger_services.event_log.reader import last_records
from frameledger_services.event_log.topics import TopicNames
from frameledger_services.forks.copies import Copies
from frameledger_services.forks.pace import ReplayPace
from frameledger_services.forks.replay import PAGE, Replayer, ReplayRefusedError
from frameledger_services.settings import Settings
from frameledger_services.store import replays, spending
from frameledger_services.store.connections import Connections
from frameledger_services.store.contexts import NoSuchContextError

BARGE_IN = """\
  the context is opened with 1 message
system: You are the information desk of a small harbour town. Answer in a sentence or two.
user: What's on at the harbour tonight?
assistant: There are two concerts: a brass band at seven, and a jazz trio at nine in the old boathouse.
  interrupted, heard: There are two concerts: a brass band at seven,
user: Only the jazz, please.
assistant: The jazz trio plays at nine in the old boathouse.
"""
BY_NAME = {path.stem: path for path in HISTORIES}


@pytest.fixture
def command(database, monkeypatch):
    """Run a command against a database."""
    monkeypatch.setenv("FRAMELEDGER_DATABASE_URL", database)

    def run(*words, code=0):
        result = CliRunner().invoke(application(), ["replay", *words])
        assert result.exit_code == code, result.output
        return result.stdout if code == 0 else result.stderr

    return run


def store(database, name):
    log = Log()
    for value in BY_NAME[name].read_bytes().splitlines():
        log.add(name, value)
    project(database, log.records, sizes=(500,))


@pytest.mark.regression("fault 126")
def test_large_frames_are_read_few_at_a_time(database):
    log = Log()
    for _ in range(5):
        log.add("ctx", encode_frame(append("x" * 3 * 1024 * 1024)))
    project(database, log.records, sizes=(500,))

    async def pages():
        connections, after = Connections(Settings(database_url=database)), 0
        try:
            while page := await connections.read(replays.frames, "ctx", after, 4, PAGE):
                yield [frame.version for frame in page]
                after = page[-1].version
        finally:
            await connections.close()

    async def read():
        return [page async for page in pages()]

    # A page ends with the frame that makes it exceed four megabytes.
    assert asyncio.run(read()) == [[1, 2], [3, 4]]


def test_a_history_is_heard_again_word_by_word(database, command):
    store(database, "barge-in")
    assert command("barge-in", "--speed", "0") == BARGE_IN
    # A range of versions, as JSON.
    lines = [
        json.loads(line)
        for line in command("barge-in", "--speed", "0", "--until", "3", "--json").splitlines()
    ]
    assert [one["version"] for one in lines] == [1, 2, 3]
    assert lines[0]["frame"]["type"] == "LLMContextFrame"
    assert str(NoSuchContextError("nobody")) in command("nobody", code=1)
    assert "no version 9999" in command("barge-in", "--from", "9999", code=1)
    assert "use them with --to" in command("barge-in", "--live", code=2)


RUN = {"run_id": derived.run_id(ContextId("odd"), Version(1)), "attempt": 1}
ODD = {
    "a NUL in a text": [{"type": "LLMTextFrame", "text": "a\x00b"} | RUN],
    "a character in two frames": [
        {"type": "LLMTextFrame", "text": "\ud83d"} | RUN,
        {"type": "LLMTextFrame", "text": "\ude00"} | RUN,
    ],
    "an attempt that is no number": [
        {"type": "LLMMessagesAppendFrame", "messages": [], "attempt": "second", "claim": "\x00"},
        {"type": "Wink", "attempt": "9" * 40} | {"run_id": RUN["run_id"]},
    ],
    "a NUL in a rewritten message": [
        {
            "type": "LLMMessageRewriteFrame",
            "position": 1,
            "message": {"role": "user", "content": "Hi\x00"},
        }
    ],
}


@pytest.mark.regression("fault 27", "journey 55")
@pytest.mark.parametrize("frames", ODD.values(), ids=list(ODD))
def test_any_payload_that_can_be_stored_is_replayed(database, command, frames):
    log = Log()
    opened = {
        "type": "LLMMessagesAppendFrame",
        "messages": [{"role": "user", "content": "Hi"}],
        "run_llm": True,
    }
    ended = {"type": "LLMFullResponseEndFrame", "finish_reason": "stop"} | RUN
    for frame in (opened, {"type": "LLMFullResponseStartFrame"} | RUN, *frames, ended):
        log.add("odd", json.dumps(frame).encode())
    project(database, log.records, sizes=(500,))
    printed = command("odd", "--speed", "0", "--json")
    assert printed.isascii()
    lines = [json.loads(line) for line in printed.splitlines()]
    assert lines[-1]["version"] == len(log.records)
    command("odd", "--speed", "0")


def test_a_call_of_the_client_is_heard_to_begin_and_to_wait(database, command, monkeypatch):
    monkeypatch.setattr("frameledger_services.cli.replay.playback.VERSIONS_AT_ONCE", 2)
    run = derived.run_id(ContextId("paint"), Version(2))
    log = Log()
    asked = [brought("paint"), append("Make it blue.", run_llm=True)]
    for frame in (*asked, *committed("paint", run=run), result("paint", {"painted": True})):
        log.add("paint", encode_frame(frame))
    project(database, log.records, sizes=(500,))
    assert command("paint", "--speed", "0").splitlines() == [
        "user: Make it blue.",
        "  paint {}",
        "  paint waits for the client",
        '  paint = {"painted": true}',
    ]


class Watch:
    """A clock that advances when a replay waits."""

    def __init__(self):
        self.now = 0.0

    async def wait(self, seconds):
        self.now += seconds


async def published(settings, client, copies, *, watch=None, speed=1.0, topic=None, first=1, last=None):
    watch = watch or Watch()
    connections = Connections(settings)
    names = TopicNames(settings.topic_prefix)
    try:
        async with Producer(settings, name="replay") as producer:
            replayer = Replayer(client, connections, producer, names)
            last = last or await client.newest_version(copies.context_id)
            pace = ReplayPace(speed, lambda: watch.now, watch.wait)
            return await replayer.publish(
                copies, topic or names.frames, first, last, pace, lambda version: None
            )
    finally:
        await connections.close()


def lines_of(history):
    return [line.decode() for line in BY_NAME[history].read_bytes().splitlines()]


def run_in_pipeline(settings, history, work):
    async def run():
        await make_topics(settings)
        async with asyncio.timeout(2 * ON_SERVERS), projecting(settings), Client(settings) as client:
            await client.publish(history, *lines_of(history), wait=True)
            await work(client)

    asyncio.run(run())


def query(settings, statement, *parameters):
    with psycopg.connect(settings.database_url.get_secret_value()) as connection:
        return connection.execute(statement, parameters).fetchall()


async def until_stored(settings, client, context_id, frames):
    async for frame in client.follow(context_id):
        if frame.version == frames:
            return


EFFECTS = "SELECT count(*) FROM outbox"


def test_copies_are_a_recording_with_the_same_messages_and_no_effect(settings):
    history = "parallel-tools"

    async def work(client):
        runs = query(settings, "SELECT count(*) FROM runs WHERE opened_version IS NOT NULL")
        done, left_out = await published(settings, client, Copies(history, "copy"), speed=0)
        assert done + left_out == await client.newest_version(history)
        await until_stored(settings, client, "copy", done + 1)
        # The copies of runs are counted, and marked as copies, which cost nothing.
        [(of_a_copy, *original_tokens), (and_one, *tokens)] = query(
            settings,
            "SELECT is_copy, sum(input_tokens), sum(output_tokens) FROM facts_runs GROUP BY is_copy ORDER BY is_copy",
        )
        assert (of_a_copy, and_one) == (False, True)
        assert tokens == original_tokens
        assert sum(tokens) > 0
        async with await psycopg.AsyncConnection.connect(
            settings.database_url.get_secret_value()
        ) as connection:
            ever = datetime(1970, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)
            assert (await spending.of_all(connection, *ever)).tokens == sum(tokens)
        copy, original = await client.context("copy"), await client.context(history)
        assert copy.context == original.context
        assert query(
            settings, "SELECT recording, open_call_count FROM contexts WHERE context_id = 'copy'"
        ) == [(True, 0)]
        assert query(settings, "SELECT count(*) FROM runs WHERE opened_version IS NOT NULL") == runs
        [(dispatched,)] = query(
            settings,
            "SELECT count(*) FROM tool_calls WHERE context_id = 'copy' AND dispatched_version IS NOT NULL",
        )
        assert dispatched == 0
        assert query(
            settings, "SELECT count(*) FROM frames WHERE context_id = 'copy' AND outcome <> 'applied'"
        ) == [(0,)]
        # Publishing the copies again changes nothing.
        assert await published(settings, client, Copies(history, "copy"), speed=0) == (done, left_out)
        marker = LLMMessagesAppendFrame(messages=[{"role": "user", "content": "Behind it."}])
        [behind] = await client.publish("copy", marker, wait=True)
        assert behind.version == done + 2
        # Into the id of another conversation it is refused, and nothing is published.
        with pytest.raises(ForkRefusedError):
            await published(settings, client, Copies("copy", history))
        assert await client.newest_version(history) == done + left_out
        # A rewrite names the same message in the copy, at another position; also if the copies begin within a mirror.
        kept = ("kept-of-an-attempt", 1, 13)
        for name, first, last in (kept, ("rewritten", 1, 26), ("kept-elsewhere", 17, 22)):
            await client.publish(name, *lines_of(name), wait=True)
            copies = Copies(name, f"copy of {name}")
            done, _ = await published(settings, client, copies, speed=0, first=first, last=last)
            opening = 2 if name == "kept-elsewhere" else 1
            await until_stored(settings, client, copies.copy, done + opening)
            original = await client.context(name, last)
            copy = await client.context(copies.copy)
            assert copy.context == original.context
            assert copy.mirror == original.mirror
        assert original.mirror is not None

    run_in_pipeline(settings, history, work)


@pytest.mark.rule("RA5.client")
def test_calls_that_a_client_answers_are_in_a_copy_with_its_answers(settings):
    history = "client-functions"

    async def work(client):
        done, left_out = await published(settings, client, Copies(history, "copy"), speed=0)
        assert done + left_out == await client.newest_version(history)
        [(began,)] = query(
            settings,
            "SELECT count(*) FROM tool_calls WHERE context_id = %s AND started_version = dispatched_version",
            history,
        )
        assert began == 5
        await until_stored(settings, client, "copy", done + began + 1)
        copy, original = await client.context("copy"), await client.context(history)
        assert copy.context == original.context
        assert query(
            settings, "SELECT count(*) FROM frames WHERE context_id = 'copy' AND outcome <> 'applied'"
        ) == [(0,)]
        # Each start follows the frame that caused it.
        starts = query(
            settings,
            "SELECT start.version - cause.version, cause.type, start.tool_call_id FROM frames AS start "
            "JOIN frames AS cause ON cause.context_id = start.context_id AND cause.frame_id = start.causation_id "
            "WHERE start.context_id = 'copy' AND start.type = 'FunctionCallInProgressFrame' ORDER BY start.version",
        )
        end, result = "LLMFullResponseEndFrame", "FunctionCallResultFrame"
        assert starts == [(1, end, "m1"), (2, end, "m12"), (1, result, "p1"), (1, end, "m1"), (2, end, "p2")]
        assert await published(settings, client, Copies(history, "copy"), speed=0) == (done, left_out)
        marker = LLMMessagesAppendFrame(messages=[{"role": "user", "content": "Behind it."}])
        [behind] = await client.publish("copy", marker, wait=True)
        assert behind.version == done + began + 2

    run_in_pipeline(settings, history, work)


def test_copies_are_published_with_their_timing(settings):
    history = "barge-in"
    moves = []

    class Noting(Watch):
        async def wait(self, seconds):
            moves.append(seconds)
            await super().wait(seconds)

    async def work(client):
        times = query(
            settings,
            "SELECT produced_at FROM frames WHERE context_id = %s ORDER BY version",
            history,
        )
        watch = Noting()
        # Frames that were logged long ago, and have no time of production.
        query_spread(settings, history)
        await published(settings, client, Copies(history, "copy"), watch=watch, speed=4)
        assert watch.now == pytest.approx((len(times) - 1) * 2.0 / 4)
        assert all(move == pytest.approx(0.5) for move in moves)

    run_in_pipeline(settings, history, work)


def query_spread(settings, context_id):
    """Change the times of a conversation's frames: two seconds apart."""
    with psycopg.connect(settings.database_url.get_secret_value()) as connection:
        connection.execute("SET session_replication_role = replica")
        connection.execute(
            "UPDATE frames SET logged_at = timestamptz '2026-03-04' + version * interval '2 s', produced_at = NULL "
            "WHERE context_id = %s",
            (context_id,),
        )


@pytest.mark.regression("fault 48")
def test_copies_of_a_replay_whose_conversation_is_erased_meanwhile_begin_no_other(settings):
    """Without the first copy it would be no recording, and models and functions would act on the remaining copies."""
    history = "barge-in"

    async def work(client):
        receipts: list[Receipt] = []

        class Erasing(Watch):
            async def wait(self, seconds):
                if not receipts:
                    receipts.append(await client.erase("copy", why="asked"))
                await super().wait(seconds)

        query_spread(settings, history)
        await published(settings, client, Copies(history, "copy"), watch=Erasing())
        [behind] = await client.publish("copy", lines_of(history)[0], wait=True)
        assert behind.version == receipts[0].version + 1
        [(late,)] = query(settings, "SELECT late_count FROM erasures")
        assert late > 10

    run_in_pipeline(settings, history, work)


@pytest.mark.regression("fault 51")
def test_copies_for_another_installation_say_when_their_conversation_began(settings):
    """So there, too, no copy begins another life after an erasure that comes meanwhile."""

    async def work(client):
        topic = TopicNames(settings.topic_prefix).dead_letters
        done, _ = await published(settings, client, Copies("barge-in", "copy"), speed=0, topic=topic)
        records = [record async for record in last_records(settings, topic, 1_000)]
        opening, *copies = sorted(records, key=lambda record: record.offset)
        assert len(copies) == done
        assert {originally_logged_ms(dict(one.headers)) for one in copies} == {opening.timestamp_ms}
        assert originally_logged_ms(dict(opening.headers)) is None

    run_in_pipeline(settings, "barge-in", work)


def test_a_live_replay_says_what_the_person_said_and_asks_anew(settings):
    async def work(client):
        await published(settings, client, Copies("barge-in", "again", live=True), speed=0)
        copies = {
            kind
            for (kind,) in query(settings, "SELECT DISTINCT type FROM frames WHERE context_id = 'barge-in'")
        }
        assert any(kind.startswith("LLMText") for kind in copies)

        async for _ in client.follow("again"):
            if query(settings, "SELECT status FROM runs WHERE context_id = 'again' AND status = 'open'"):
                break
        said = {
            kind for (kind,) in query(settings, "SELECT DISTINCT type FROM frames WHERE context_id = 'again'")
        }
        assert not any(kind.startswith(("LLMFull", "LLMText", "FunctionCall", "Bot")) for kind in said)

    run_in_pipeline(settings, "barge-in", work)


@pytest.mark.regression("fault 241")
def test_what_was_published_is_printed_without_control_characters(settings, capsys):
    async def work(client):
        await client.publish("a\x9bb", *lines_of("barge-in")[:2], wait=True)
        frames = TopicNames(settings.topic_prefix).frames
        for last in (1, 2):
            copies = Copies("a\x9bb", f"{last}\x1b[31m")
            await copying.publish(settings, copies, frames, 1, last, 0, as_json=False)

    run_in_pipeline(settings, "barge-in", work)
    first, second = [one for one in capsys.readouterr().out.splitlines() if one.startswith("Published")]
    assert first.startswith("Published 1 frame of a\ufffdb to ")
    assert first.endswith(" as 1\ufffd[31m, a recording.")
    assert second.startswith("Published 2 frames of ")


@pytest.mark.regression("fault 239")
def test_ctrl_c_while_copies_are_published_is_no_success(monkeypatch):
    async def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(copying, "publish", interrupted)
    monkeypatch.setattr(playback, "play", interrupted)
    for words, code in ((["--to", "llm.frames"], 130), ([], 0)):
        result = CliRunner().invoke(application(), ["replay", "ctx", *words])
        assert result.exit_code == code, words


def test_copies_do_not_go_where_workers_look_for_work(settings):
    async def work(client):
        with pytest.raises(ReplayRefusedError, match="topic of effects"):
            await published(
                settings,
                client,
                Copies("barge-in", "copy"),
                topic=TopicNames(settings.topic_prefix).inference,
            )

    run_in_pipeline(settings, "barge-in", work)


def test_a_replay_into_a_conversation_that_somebody_made_live_again_is_refused(settings):
    async def work(client):
        copies = Copies("barge-in", "copy")
        await published(settings, client, copies, speed=0, last=2)
        await client.publish("copy", LLMContextFrame(context={}), wait=True)
        before = await client.newest_version("copy")
        with pytest.raises(ReplayRefusedError, match="not a recording"):
            await published(settings, client, copies, speed=0)
        assert await client.newest_version("copy") == before
        # Nor under the id of an erased conversation, where such ids are rejected.
        await client.publish("gone", *lines_of("barge-in"), wait=True)
        await client.erase("gone", why="asked")
        with pytest.raises(ReplayRefusedError, match=r"its first frame was rejected \(context_erased\)"):
            await published(settings, client, Copies("barge-in", "gone"), speed=0)

    run_in_pipeline(settings.model_copy(update={"erased_ids": "refuse"}), "barge-in", work)
