"""The client on a real broker and a real database. The tables are filled without a projector."""

import asyncio
import json
import threading
from contextlib import asynccontextmanager, suppress
from functools import partial
from uuid import UUID, uuid4

import psycopg
import pytest
from pydantic import SecretStr
from tests.bounds import ON_SERVERS, scaled
from tests.support import rows
from tests.support.logs import frames_topic, read, reading

from frameledger.context import LLMContext
from frameledger.frames import LLMRunFrame, LLMTextFrame, LLMUpdateSettingsFrame
from frameledger.partition import partition_for
from frameledger.record import MAX_VALUE_BYTES, decode
from frameledger.tools import FunctionSchema, ToolsSchema
from frameledger_services.client import (
    Client,
    DatabaseError,
    FramesUnacknowledgedError,
    NoSuchContextError,
    NoSuchVersionError,
    NotVisibleError,
    StoredFrame,
    SyncClient,
    notifications,
)
from frameledger_services.client import reading as client_reading
from frameledger_services.client.notifications import Notifications
from frameledger_services.event_log.broker import BrokerError
from frameledger_services.settings import Settings
from frameledger_services.store.progress_channel import CHANNEL
from frameledger_services.store.projections import PROJECTION
from frameledger_services.store.schema import TooOldError

TALK = [
    {"type": "LLMContextFrame", "context": {"messages": [{"role": "system", "content": "Be brief."}]}},
    {"type": "LLMMessagesAppendFrame", "messages": [{"role": "user", "content": "One?"}], "run_llm": True},
    {"type": "LLMFullResponseStartFrame"},
    {"type": "LLMTextFrame", "text": "One."},
    {"type": "LLMFullResponseEndFrame", "finish_reason": "stop"},
    {"type": "LLMTextFrame", "text": "late"},
    {"type": "LLMUpdateSettingsFrame", "settings": {"temperature": 0.5, "seed": 2**70}},
    {"type": "LLMMessagesUpdateFrame", "messages": [{"role": "user", "content": "Anew"}]},
]
PATIENCE = [scaled(seconds) for seconds in (0.5, 5.0, 25.0)]
"""Seconds to wait for what never comes, tried one after another until Kafka has answered within them."""

TRACE = f"00-{'a' * 32}-{'b' * 16}-01"
VALUES = [json.dumps(value).encode() for value in TALK]


@pytest.fixture
def settings(log, database):
    """Settings for the broker and a database of this test's own."""
    return log.model_copy(update={"database_url": SecretStr(database)})


@pytest.fixture
def readable(database):
    """Settings for a database only."""
    return Settings(database_url=SecretStr(database))


def fill(database, context_id="ctx-1", values=VALUES):
    with psycopg.connect(database) as connection:
        return rows.write(connection, context_id, values)


def with_client(settings, work):
    async def connected():
        async with asyncio.timeout(ON_SERVERS), Client(settings) as client:
            return await work(client)

    return asyncio.run(connected())


@asynccontextmanager
async def projector(settings, database, context_id, *, notifies=True):
    """Act as a projector of one conversation within the block: read the log, fill the tables, and announce progress."""

    async def run():
        async with reading(settings, frames_topic(settings)) as reader:
            version = 0
            while True:
                for record in await read(reader, 1):
                    version += 1
                    await asyncio.to_thread(store, record, version)

    def store(record, version):
        with psycopg.connect(database) as connection:
            with connection.cursor() as cursor:
                rows.insert(
                    cursor,
                    "frames",
                    context_id=context_id,
                    version=version,
                    frame_id=uuid4(),
                    logged_at=rows.BEGINNING,
                    offset=record.offset,
                    partition=record.partition,
                    type=decode(record.value).type,
                    outcome="applied",
                    chain=bytes(32),
                    payload=record.value.decode(),
                )
            connection.execute(
                "INSERT INTO contexts (context_id, version, state_version, started_at, last_at, fold_version, "
                "chain, state) VALUES (%s, %s, 0, now(), now(), 1, sha256(''), '{}') "
                "ON CONFLICT (context_id) DO UPDATE SET version = excluded.version",
                (context_id, version),
            )
            connection.execute(
                "INSERT INTO projections (projection, topic, partition, next_offset) VALUES (%s, %s, %s, %s) "
                "ON CONFLICT (projection, topic, generation, partition) DO UPDATE "
                "SET next_offset = excluded.next_offset",
                (PROJECTION, record.topic, record.partition, record.offset + 1),
            )
        if notifies:
            with psycopg.connect(database, autocommit=True) as connection:
                connection.execute(f"NOTIFY {CHANNEL}")

    task = asyncio.create_task(run())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def test_what_is_published_lies_on_the_log_in_order_with_ids_times_and_headers(settings):
    frames = [LLMTextFrame(text=str(number)) for number in range(20)]

    async def scenario(client):
        places = await client.publish(
            "ctx-1", *frames, source="test/a", traceparent=TRACE, causation_id=UUID(int=7)
        )
        async with reading(settings, frames_topic(settings)) as reader:
            return places, await read(reader, 20)

    places, records = with_client(settings, scenario)
    assert [(record.partition, record.offset) for record in records] == [
        (place.partition, place.offset) for place in places
    ]
    read_frames = [decode(record.value) for record in records]
    assert [frame.text for frame in read_frames] == [frame.text for frame in frames]
    assert len({frame.id for frame in read_frames} - {None}) == 20
    assert all(frame.produced_at for frame in read_frames)
    headers = dict(records[0].headers)
    assert headers["ce_id"].decode() == read_frames[0].id
    assert headers["ce_source"] == b"test/a"
    assert headers["ce_time"].decode() == read_frames[0].produced_at
    assert headers["traceparent"] == TRACE.encode()
    assert headers["fl_causation_id"] == str(UUID(int=7)).encode()


@pytest.mark.regression("repair 13")
def test_tools_are_set_in_every_form_that_a_context_takes(settings):
    look = FunctionSchema("look", "Looks.")
    with SyncClient(settings) as client:
        client.set_tools("ctx-1", ToolsSchema([look]))
        client.set_tools("ctx-1", None)
        with pytest.raises(TypeError, match="a tool is"):
            client.set_tools("ctx-1", [1])  # type: ignore[list-item]  # on purpose

    async def published():
        async with reading(settings, frames_topic(settings)) as reader:
            return [decode(record.value).tools for record in await read(reader, 2)]

    assert asyncio.run(published()) == [(look.to_openai(),), ()]


def test_to_publish_nothing_is_nothing(settings):
    assert with_client(settings, lambda client: client.publish("ctx-1", wait=True)) == ()


@pytest.mark.parametrize(
    ("context_id", "frame"),
    [
        ("", LLMRunFrame()),
        ("x" * 256, LLMRunFrame()),
        ("a\x00b", LLMRunFrame()),
        ("ctx-1", LLMUpdateSettingsFrame(settings={"temperature": float("nan")})),
        ("ctx-1", LLMTextFrame(text="x" * MAX_VALUE_BYTES)),
    ],
    ids=["no key", "long key", "NUL", "NaN", "too large"],
)
def test_what_nobody_could_read_is_refused_before_anything_is_published(settings, context_id, frame):
    async def scenario(client):
        with pytest.raises(ValueError, match=r"."):
            await client.publish(context_id, LLMRunFrame(), frame)
        await client.publish("ctx-2", LLMRunFrame())
        async with reading(settings, frames_topic(settings)) as reader:
            return await read(reader, 1)

    assert [record.key for record in with_client(settings, scenario)] == [b"ctx-2"]


def test_who_does_not_wait_long_enough_gets_the_frames_to_publish_them_again(settings):
    async def scenario(client):
        with pytest.raises(FramesUnacknowledgedError) as late:
            await client.publish("ctx-1", LLMTextFrame(text="a"), LLMTextFrame(text="b"), within=1e-9)
        assert [frame.text for frame in late.value.frames] == ["a", "b"]
        assert None not in {frame.id for frame in late.value.frames}
        return await client.publish("ctx-1", *late.value.frames)

    assert len(with_client(settings, scenario)) == 2


def test_no_broker_and_no_database_are_errors_that_say_where_they_were_looked_for():
    nowhere = Settings(
        kafka_bootstrap_servers="127.0.0.1:1",
        database_url=SecretStr("postgresql://me:hush@127.0.0.1:1/x"),
    )

    async def scenario(client):
        with pytest.raises(BrokerError, match=r"127\.0\.0\.1:1"):
            await client.publish("ctx-1", LLMRunFrame())
        with pytest.raises(DatabaseError, match=r"host=127\.0\.0\.1 port=1") as unreached:
            await client.context("ctx-1")
        assert "hush" not in str(unreached.value)

    with_client(nowhere, scenario)


def test_a_database_without_tables_is_an_error_with_its_remedy(empty_database):
    with pytest.raises(TooOldError, match="frameledger migrate"):
        with_client(Settings(database_url=SecretStr(empty_database)), lambda client: client.context("ctx-1"))


def test_an_error_of_the_caller_passes_through_as_it_is(readable):
    async def scenario(client):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        with_client(readable, scenario)


def test_a_context_reads_at_every_version_as_the_fold_has_it(readable, database):
    expected = fill(database)
    fill(database, "ctx-2", VALUES[:3])

    async def scenario(client):
        return await client.context("ctx-1"), [
            await client.context("ctx-1", at) for at in range(len(expected))
        ]

    newest, versions = with_client(readable, scenario)
    assert [stored.version for stored in versions] == list(range(len(expected)))
    assert [stored.context.to_wire() for stored in versions] == expected
    assert newest == versions[-1]
    assert versions[0].context == LLMContext()
    assert versions[-1].context.settings["seed"] == 2**70


def test_a_context_or_version_that_is_not_there_is_an_error_of_its_own(readable, database):
    fill(database)

    async def scenario(client):
        with pytest.raises(NoSuchContextError, match="no context 'nobody'"):
            await client.context("nobody")
        for version in (-1, 9):
            with pytest.raises(NoSuchVersionError, match="it has 0 to 8"):
                await client.context("ctx-1", version)
        assert await client.newest_version("ctx-1") == 8
        assert await client.newest_version("nobody") == 0

    with_client(readable, scenario)


def test_many_may_read_at_once(readable, database):
    expected = fill(database)

    async def scenario(client):
        return await asyncio.gather(*(client.context("ctx-1", number % 9) for number in range(90)))

    found = with_client(readable, scenario)
    assert [stored.context.to_wire() for stored in found] == expected * 10


def test_reading_goes_on_after_the_database_ended_every_connection(readable, database):
    fill(database)

    async def scenario(client):
        await asyncio.gather(*(client.context("ctx-1") for _ in range(8)))
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        return await client.context("ctx-1")

    assert with_client(readable, scenario).version == 8


def test_notifications_are_heard_again_after_the_database_ended_the_connection(readable, database):
    async def heard(received, offset):
        with psycopg.connect(database, autocommit=True) as connection:
            while (mark := received.mark("frames", 3))[1] != offset:
                connection.execute("SELECT pg_notify(%s, %s)", (CHANNEL, f"frames 3:{offset}"))
                await received.until_moved("frames", 3, mark, often=True)

    async def scenario():
        received = Notifications(readable)
        listening = asyncio.create_task(received.listen())
        async with asyncio.timeout(ON_SERVERS):
            await received.until_started()
            await heard(received, 7)
            with psycopg.connect(database, autocommit=True) as connection:
                connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )
            await heard(received, 8)
        assert not listening.done()
        listening.cancel()
        await asyncio.wait([listening])

    asyncio.run(scenario())


def test_stored_frames_tell_what_became_of_them(readable, database):
    fill(database)

    async def scenario(client):
        return [frame async for frame in client.frames("ctx-1", 4)]

    frames = with_client(readable, scenario)
    assert [(frame.version, frame.outcome, frame.reason) for frame in frames] == [
        (5, "applied", None),
        (6, "ignored", "no_open_response"),
        (7, "applied", None),
        (8, "applied", None),
    ]
    assert [frame.payload for frame in frames] == VALUES[4:]
    assert frames[1].frame == decode(VALUES[5])
    assert frames[1].source == "test/5"


@pytest.mark.parametrize("notifies", [True, False], ids=["notified", "nobody notifies"])
def test_who_waits_sees_what_was_published_in_the_tables(settings, database, notifies):
    async def scenario(client):
        async with projector(settings, database, "ctx-1", notifies=notifies):
            for number in range(3):
                await client.publish("ctx-1", LLMRunFrame(), *map(decode, VALUES[:2]), wait=True)
                assert (await client.context("ctx-1")).version == 3 * (number + 1)

    with_client(settings, scenario)


def test_who_waits_in_vain_is_told_how_far_the_tables_are(settings, database):
    async def scenario(client):
        never = await in_vain(client, LLMRunFrame())
        assert "no projector has ever read" in str(never)
        (place,) = never.places
        with psycopg.connect(database) as connection:
            connection.execute(
                "INSERT INTO projections (projection, topic, partition, next_offset) VALUES (%s, %s, %s, 1)",
                (PROJECTION, place.topic, place.partition),
            )
        late = await in_vain(client, LLMRunFrame(), LLMRunFrame())
        assert f"has reached offset 1, with {late.places[-1].offset} still to store" in str(late)

    async def in_vain(client, *frames):
        for within in PATIENCE:
            # On a busy machine the time may be over before they are acknowledged, or before the database was asked.
            with suppress(FramesUnacknowledgedError):
                with pytest.raises(NotVisibleError) as found:
                    await client.publish("ctx-1", *frames, wait=True, within=within)
                if "the database has not answered yet" not in str(found.value):
                    return found.value
        raise AssertionError("nothing is acknowledged, or looked for in the tables")

    with_client(settings, scenario)


def test_who_follows_gets_each_frame_once_as_it_is_stored(settings, database):
    async def scenario(client):
        seen = []
        async with projector(settings, database, "ctx-1"):
            followed = client.follow("ctx-1")
            for value in VALUES:
                await client.publish("ctx-1", decode(value))
                seen.append(await anext(followed))
            await followed.aclose()
        assert [frame.version for frame in seen] == list(range(1, 9))
        assert [frame.type for frame in seen] == [value["type"] for value in TALK]

    with_client(settings, scenario)


def test_who_follows_from_a_version_gets_what_comes_after_it(readable, database):
    fill(database)

    async def scenario(client):
        followed = client.follow("ctx-1", 6)
        assert [(await anext(followed)).version, (await anext(followed)).version] == [7, 8]
        await followed.aclose()

    with_client(readable, scenario)


@pytest.mark.regression("fault 16")
@pytest.mark.parametrize("context_id", ["ctx-1", "not yet there"])
def test_who_follows_queries_only_when_the_partition_of_the_conversation_moves(
    readable, database, monkeypatch, context_id
):
    """The frequent polls come every millisecond here, and the rare ones of a follower never."""
    topic, partitions = "llm.frames", 8
    own = partition_for(context_id.encode(), partitions)
    other = (own + 1) % partitions
    monkeypatch.setattr(notifications, "POLL_SECONDS", 0.001)
    monkeypatch.setattr(notifications, "FOLLOW_POLL_SECONDS", 2 * ON_SERVERS)
    queries = asyncio.Queue[list[StoredFrame]]()

    async def counted(*arguments, **options):
        found = await frames_after(*arguments, **options)
        queries.put_nowait(found)
        return found

    frames_after = client_reading.frames_after
    monkeypatch.setattr(client_reading, "frames_after", counted)

    async def notified(client, partition, offset):
        progress = client._notifications
        while (mark := progress.mark(topic, partition))[1] != offset:
            with psycopg.connect(database, autocommit=True) as connection:
                connection.execute("SELECT pg_notify(%s, %s)", (CHANNEL, f"{topic} {partition}:{offset}"))
            await progress.until_moved(topic, partition, mark)

    async def scenario(client):
        await client._listen(within=ON_SERVERS)
        followed = client.follow(context_id, 8)
        waiting = asyncio.create_task(anext(followed))
        assert await queries.get() == []
        for offset in range(50):
            await notified(client, other, offset)
        assert queries.empty()
        await notified(client, own, 1)
        assert await queries.get() == []
        await notified(client, other, 50)
        assert queries.empty()
        waiting.cancel()
        await asyncio.wait([waiting])

    fill(database)
    with psycopg.connect(database) as connection:
        connection.execute("INSERT INTO topics (topic, partitions) VALUES (%s, %s)", (topic, partitions))
    with_client(readable, scenario)


def test_the_synchronous_client_does_the_same(settings, database):
    expected = fill(database)
    with SyncClient(settings) as client:
        (place,) = client.publish("ctx-2", LLMRunFrame())
        assert place.topic == frames_topic(settings)
        assert client.context("ctx-1", 3).context.to_wire() == expected[3]
        assert [frame.version for frame in client.frames("ctx-1")] == list(range(1, 9))
        assert client.newest_version("ctx-1") == 8
        followed = client.follow("ctx-1", 7)
        assert next(followed).version == 8
        followed.close()
        with pytest.raises(NoSuchContextError):
            client.context("nobody")
    client.close()
    with pytest.raises(RuntimeError, match="closed"):
        client.context("ctx-1")
    assert "frameledger-client" not in {thread.name for thread in threading.enumerate()}


def test_the_synchronous_client_works_where_a_loop_runs_already(readable, database):
    fill(database)

    async def in_a_notebook():
        with SyncClient(readable) as client:
            return client.context("ctx-1").version

    assert asyncio.run(in_a_notebook()) == 8


@pytest.fixture
def run(settings, command):
    """Runs `frameledger`, on this test's topics and database."""
    return partial(command, settings)


def json_lines(result):
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_the_command_publishes_arguments_files_and_standard_input(run, tmp_path):
    (tmp_path / "one.json").write_text(json.dumps({"type": "LLMTextFrame", "text": "1"}, indent=2))
    (tmp_path / "more.jsonl").write_bytes(b"\n".join(VALUES[:2]) + b"\n\n")
    first = run("publish", "ctx-1", '{"type":"LLMRunFrame","id":"a"}', str(tmp_path / "one.json"), "--json")
    assert [(line["type"], line["offset"]) for line in json_lines(first)] == [
        ("LLMRunFrame", 0),
        ("LLMTextFrame", 1),
    ]
    assert json_lines(first)[0]["id"] == "a"
    second = run("publish", "ctx-1", str(tmp_path / "more.jsonl"))
    assert "Published 2 frames to ctx-1" in second.stdout
    third = run("publish", "ctx-1", "-", input=b"\n".join(VALUES[2:]))
    assert "Published 6 frames to ctx-1" in third.stdout

    log = json_lines(run("tail", "--json", "-n", "100"))
    assert [line["offset"] for line in log] == list(range(10))
    assert [line["frame"]["type"] for line in log[2:]] == [value["type"] for value in TALK]
    assert "Be brief." in run("tail").stdout


def test_a_frame_that_is_none_stops_the_command_before_it_publishes(run):
    result = run("publish", "ctx-1", '{"type":"LLMRunFrame"}', '{"no":"type"}')
    assert result.exit_code == 1
    assert "no_type" in result.stderr
    assert run("tail", "--json").stdout == ""


def test_of_standard_input_what_comes_before_such_a_line_is_published(run):
    result = run("publish", "ctx-1", input=b'{"type":"LLMRunFrame"}\nnonsense\n{"type":"LLMRunFrame"}\n')
    assert result.exit_code == 1
    assert "line 2 of standard input is not a valid frame: not_json" in result.stderr
    assert len(json_lines(run("tail", "--json"))) == 1


def test_the_command_says_when_the_frames_are_not_in_the_tables(run):
    for within in PATIENCE:
        result = run("publish", "ctx-1", '{"type":"LLMRunFrame"}', "--wait", "--within", within)
        assert result.exit_code == 1
        if "no projector has ever read" in result.stderr:
            break
    else:
        raise AssertionError("nothing is acknowledged")


def test_the_command_shows_the_last_frames_of_a_conversation_with_their_outcome(run, database):
    fill(database)
    lines = run("tail", "ctx-1", "-n", "3").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["6", "7", "8"]
    assert "no_open_response" in lines[0]
    assert "late" in lines[0]
    found = json_lines(run("tail", "ctx-1", "--json"))
    assert [line["frame"] for line in found] == TALK
    assert [line["outcome"] for line in found].count("ignored") == 1
    unknown = run("tail", "nobody")
    assert unknown.exit_code == 1
    assert "There is no context 'nobody'" in unknown.stderr
