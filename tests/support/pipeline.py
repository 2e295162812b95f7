"""The whole pipeline: publishes raw records, waits until they are projected, and checks the invariants at the end.

The tables equal an offline fold of the topic, row by row; each effect on a topic is one of the fold's, under one id;
and the effects of all open work are published.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import confluent_kafka
import psycopg
import pytest
from aiokafka import TopicPartition
from confluent_kafka import IsolationLevel
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # its own page imports it so
from tests.bounds import ON_SERVERS, ONE_ANSWER
from tests.support.batches import HISTORIES, dump, rows_of, value_of
from tests.support.causation import without_origin
from tests.support.polling import NOTIFICATION_SECONDS, pause
from tests.support.topic_prefixes import topic_prefix

from frameledger import derived
from frameledger.effects import to_wire
from frameledger.evolve.state import State
from frameledger.fold import Conversation, Folding
from frameledger.ids import ContextId, Version
from frameledger.partition import partition_for
from frameledger.react import react
from frameledger.record import DecodeError, LoggedFrame, Record, read
from frameledger_services.event_log import broker
from frameledger_services.event_log.consumer import consumer, to_record
from frameledger_services.event_log.topics import MAX_DEAD_LETTER_BYTES, TopicNames, topic_specs
from frameledger_services.projector.batches import Batches
from frameledger_services.projector.commits import Commits
from frameledger_services.projector.head_cache import HeadCache
from frameledger_services.projector.ownership import OwnedPartition, ProjectorTopics
from frameledger_services.settings import Settings
from frameledger_services.store import binary_copy, held_effects, projections
from frameledger_services.store.frame_ids import frame_uuid
from frameledger_services.store.progress_channel import CHANNEL

PARTITIONS = 4

_owners = itertools.count(1)


@pytest.fixture(name="pipeline")
def own_pipeline(kafka, database, make_database, migrated_template):
    """Topics and a database for this test only. At the end, every frame of a service must have a cause."""
    pipeline = made(kafka.bootstrap_servers, database, lambda: make_database(template=migrated_template))
    yield pipeline
    with psycopg.connect(pipeline.address) as connection:
        assert without_origin(connection) == []


def made(bootstrap_servers: str | None, database: Any, another_database: Any) -> Pipeline:
    """Returns a pipeline on these servers, with its topics."""
    settings = Settings(
        kafka_bootstrap_servers=bootstrap_servers,
        database_url=database,
        topic_prefix=topic_prefix(),
        topic_partitions=PARTITIONS,
    )
    pipeline = Pipeline(settings, another_database)
    pipeline.make_topics()
    return pipeline


@dataclass(frozen=True, slots=True)
class Raw:
    """A record as any client may send it. Without a partition it goes to that of its key."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None


class Pipeline:
    """A topic prefix and a database, for synchronous tests."""

    def __init__(self, settings: Settings, another_database: Any) -> None:
        self.settings = settings
        self.names = TopicNames(settings.topic_prefix)
        self.address: str = settings.database_url.get_secret_value()
        self._another_database = another_database
        self._admin = self._client()

    def _client(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": str(self.settings.kafka_bootstrap_servers), "log_level": 0})

    def make_topics(self) -> None:
        async def make():
            async with broker.connect(self.settings) as brokers:
                await brokers.create_missing(topic_specs(self.settings))

        asyncio.run(make())

    def publish(self, records: Iterable[Raw]) -> list[tuple[int, int]]:
        """Send records unchanged. Returns the partition and offset of each."""
        places: dict[int, tuple[int, int]] = {}

        def delivered(number, error, message):
            assert error is None, error
            places[number] = message.partition(), message.offset()

        client = confluent_kafka.Producer(
            {
                "bootstrap.servers": self.settings.kafka_bootstrap_servers,
                "message.max.bytes": MAX_DEAD_LETTER_BYTES,
                "max.in.flight.requests.per.connection": 1,
                # So that a burst is sent as one batch.
                "linger.ms": 20,
                "log_level": 0,
            }
        )
        for number, raw in enumerate(records):
            home = partition_for(raw.key or b"", PARTITIONS)
            client.produce(
                self.names.frames,
                raw.value,
                raw.key,
                partition=home if raw.partition is None else raw.partition,
                headers=list(raw.headers),
                on_delivery=partial(delivered, number),
            )
        assert client.flush(ON_SERVERS) == 0
        return [places[number] for number in range(len(places))]

    def until_idle(self, *projectors: Any) -> None:
        """Wait until the whole topic is projected, no effects are held and the outbox is empty. Fails if one of these
        processes dies."""
        until = time.monotonic() + ON_SERVERS
        with psycopg.connect(self.address, autocommit=True) as connection:
            connection.execute(f"LISTEN {CHANNEL}")
            while not (self._is_idle(connection) and self._requests_effects(connection)):
                for one in projectors:
                    assert one.is_alive(), "the projector died"
                assert time.monotonic() < until, self.progress(connection)
                for _ in connection.notifies(timeout=NOTIFICATION_SECONDS, stop_after=1):
                    pass

    def until_owned_by(self, projector: Any) -> None:
        """Wait until this process has taken over every partition, and requests the effects of frames that it stores
        from now on. Before that, it holds them back, and requests only those of work that is still open."""
        self.until(
            "SELECT count(*) = %s FROM projections "
            "WHERE sealed_at IS NULL AND effects_held_until IS NULL AND owner LIKE %s",
            *(PARTITIONS, f"%/{projector.pid}/%"),
        )

    def until_idle_or_dead(self, projector: Any) -> bool:
        """Wait until this process has projected everything, or has died. Returns whether it died."""
        until = time.monotonic() + ON_SERVERS
        with psycopg.connect(self.address, autocommit=True) as connection:
            connection.execute(f"LISTEN {CHANNEL}")
            while projector.is_alive():
                if self._is_idle(connection) and self._requests_effects(connection):
                    return False
                assert time.monotonic() < until, self.progress(connection)
                for _ in connection.notifies(timeout=NOTIFICATION_SECONDS, stop_after=1):
                    pass
        return True

    def until(self, question: str, *parameters: Any) -> None:
        """Wait until a query returns true."""
        until = time.monotonic() + ON_SERVERS
        with psycopg.connect(self.address, autocommit=True) as connection:
            connection.execute(f"LISTEN {CHANNEL}")
            while not value_of(connection, question, *parameters):
                assert time.monotonic() < until, (question, self.progress(connection))
                for _ in connection.notifies(timeout=NOTIFICATION_SECONDS, stop_after=1):
                    pass

    def progress(self, connection: Any) -> Any:
        """Returns the progress of all partitions and the outbox, for error messages."""
        return {
            "ends": self.ends(),
            "next": connection.execute(
                "SELECT partition, next_offset, epoch, crashes, crashes_alone FROM projections ORDER BY 1"
            ).fetchall(),
            "outbox": connection.execute("SELECT kind, count(*) FROM outbox GROUP BY 1").fetchall(),
        }

    def _requests_effects(self, connection: Any) -> bool:
        """Returns whether no effects are held. They are requested in a separate transaction after the one that stored
        the last record. A projector that ends just after a takeover leaves them to the next one."""
        held = "SELECT count(*) FROM projections WHERE sealed_at IS NULL AND effects_held_until IS NOT NULL"
        return bool(value_of(connection, held) == 0)

    def _is_idle(self, connection: Any) -> bool:
        ends = self.ends()
        query = (
            "SELECT json_object_agg(partition, next_offset), (SELECT count(*) FROM outbox) FROM projections "
            "WHERE sealed_at IS NULL"
        )
        reached, waiting = connection.execute(query).fetchone()
        # A copy that was forwarded between the two queries would be on the topic now.
        return (
            reached is not None
            and waiting == 0
            and all(reached.get(str(partition), 0) >= end for partition, end in ends.items())
            and self.ends() == ends
        )

    def ends(self) -> dict[int, int]:
        """Returns the end offset of each partition of the frames, including transaction markers."""
        places = [confluent_kafka.TopicPartition(self.names.frames, one) for one in range(PARTITIONS)]
        until = time.monotonic() + ON_SERVERS
        while True:
            asked = self._admin.list_offsets(
                dict.fromkeys(places, OffsetSpec.latest()),
                isolation_level=IsolationLevel.READ_COMMITTED,
                request_timeout=ONE_ANSWER,
            )
            try:
                return {place.partition: answer.result().offset for place, answer in asked.items()}
            except confluent_kafka.KafkaException as error:
                # A partition has no leader: it was just created, or the broker is down.
                if time.monotonic() > until:
                    raise AssertionError("no leader returned the end offsets") from error
                # A client may keep asking a leader that it knew before the outage.
                self._admin = self._client()

    def records(self, topic: str | None = None) -> list[Record]:
        """Returns all committed records of a topic, partition by partition."""
        return asyncio.run(_all_records(self.settings, topic or self.names.frames))

    def check(self, *projectors: Any, every: int = 7) -> FoldedTopic:
        """Assert that tables, effects and outbox match the topic once these processes have projected all of it.
        Contexts are compared at one version of `every`, and at their last.

        All publishers must have ended. An idle projector may take over its partitions again at any moment, as after a
        pause, and request open work once more: pass it, or stop it instead of killing it (`killable.finish`). If a
        worker may have published since the test last knew that all was projected, a projector must still run, and is
        passed.
        """
        if projectors:
            self.until_idle(*projectors)
        ends = self.ends()
        with psycopg.connect(self.address, autocommit=True) as connection:
            assert self._is_idle(connection), (
                "no projector was passed that projects the rest",
                self.progress(connection),
            )
        folded = self._checked(every)
        assert self.ends() == ends, "something was published during the check"
        return folded

    def _checked(self, every: int) -> FoldedTopic:
        records = self.records()
        folded = fold_topic(records, every=every)
        with psycopg.connect(self.address) as connection:
            frames = connection.execute(
                "SELECT context_id, version, frame_id, outcome, reason, payload::text FROM frames"
            ).fetchall()
            stored_only, folded_only = set(frames) - set(folded.frames), set(folded.frames) - set(frames)
            assert len(frames) == len(folded.frames), (
                len(frames),
                len(folded.frames),
                stored_only,
                folded_only,
            )
            assert not stored_only, (stored_only, folded_only)
            for (context_id, version), context in folded.contexts.items():
                stored = value_of(connection, "SELECT context_at(%s, %s)", context_id, version)
                assert stored == context, (context_id, version)
            broken = connection.execute(
                "SELECT context_id FROM contexts WHERE NOT (SELECT intact FROM verify_chain(context_id))"
            ).fetchall()
            assert broken == []
            rejected = rows_of(connection, "rejected_frames")
            stored_rows = dump(self.address)
        reference = self.folded_offline(records)
        with psycopg.connect(reference) as connection:
            assert rejected == rows_of(connection, "rejected_frames")
        for table, rows in dump(reference).items():
            assert stored_rows[table] == rows, table
        self._check_effects(folded)
        self._check_dead_letters(folded)
        return folded

    def folded_offline(self, records: Sequence[Record]) -> str:
        """Returns another database, with the tables that one projector fills from these records alone."""
        reference: str = self._another_database()
        self._fold_offline(reference, records)
        return reference

    def _fold_offline(self, address: str, records: Sequence[Record]) -> None:
        """Project everything at once into an empty database, without faults."""

        names = self.names
        topics = ProjectorTopics(names.frames, names.dead_letters, dict(_effect_topics(names)), PARTITIONS)

        async def run():
            async with await psycopg.AsyncConnection.connect(address, autocommit=True) as connection:
                binary_copy.prepare(connection)
                owned = {}
                for partition in range(PARTITIONS):
                    taken = await projections.assign(connection, names.frames, partition, "offline")
                    await held_effects.hold(connection, names.frames, partition, taken.epoch, None)
                    owned[partition] = OwnedPartition(partition, taken.epoch, taken.next_offset)
                batches = Batches(Commits(connection, topics, HeadCache()))
                for start in range(0, len(records), 1_000):
                    some = records[start : start + 1_000]
                    positions = {one.partition: one.offset + 1 for one in some}
                    await batches.store([(one, None) for one in some], owned, positions)

        asyncio.run(run())

    def _check_effects(self, folded: FoldedTopic) -> None:
        found: dict[str, Any] = {}
        for effect, topic in _effect_topics(self.names):
            for record in self.records(topic):
                value = json.loads(record.value or b"")
                assert value["effect"] == effect
                assert dict(record.headers)["ce_id"] == value["id"].encode()
                assert found.setdefault(value["id"], value) == value
                assert record.key == value["context_id"].encode()
        # Work that had ended when a partition caught up after a restart was not requested.
        assert found.items() <= folded.effects.items()
        assert folded.still_open <= found.keys()

    def _check_dead_letters(self, folded: FoldedTopic) -> None:
        places = {
            (dict(record.headers)["fl_partition"], dict(record.headers)["fl_offset"])
            for record in self.records(self.names.dead_letters)
        }
        assert places == {(b"%d" % partition, b"%d" % offset) for partition, offset in folded.no_frames}


@dataclass(slots=True)
class FoldedTopic:
    """The content of a topic, folded."""

    frames: list[tuple[Any, ...]] = field(default_factory=list)
    """Context, version, id, outcome, reason and payload of each frame."""

    contexts: dict[tuple[str, int], Any] = field(default_factory=dict)
    """Contexts at some of their versions, and at their last."""

    effects: dict[str, Any] = field(default_factory=dict)
    still_open: set[str] = field(default_factory=set)
    """The ids of the effects of runs and calls that are open at the end and were not started."""

    no_frames: list[tuple[int, int]] = field(default_factory=list)
    repeated: int = 0


def fold_topic(records: Iterable[Record], *, every: int = 7) -> FoldedTopic:
    """Fold a topic by the pure fold alone, frame by frame."""
    folded = FoldedTopic()
    foldings: dict[str, Folding] = {}
    seen: dict[tuple[str, Any], bytes] = {}
    for record in records:
        logged = _logged(record)
        if logged is None:
            folded.no_frames.append((record.partition, record.offset))
        elif partition_for(record.key or b"", PARTITIONS) == record.partition:
            value = record.value or b""
            key = logged.context_id, frame_uuid(logged.frame_id)
            if (before := seen.setdefault(key, value)) is not value:
                if _without_its_time(before) == _without_its_time(value):
                    folded.repeated += 1
                else:
                    folded.no_frames.append((record.partition, record.offset))
                continue
            folding = foldings.setdefault(logged.context_id, Folding(Conversation.new(logged.context_id)))
            _step(folded, folding, logged, value.decode(), every)
    for context_id, folding in foldings.items():
        conversation = folding.conversation()
        folded.contexts[context_id, conversation.state.version] = conversation.context.to_wire()
        folded.still_open |= _still_open(folded, conversation.state)
    return folded


def _without_its_time(value: bytes) -> str:
    """Returns a frame without the time at which it was produced, which a retry may change."""
    return json.dumps({**json.loads(value), "produced_at": None}, sort_keys=True)


def _still_open(folded: FoldedTopic, state: State) -> set[str]:
    run, calls = state.runs.open, state.calls.open.values()
    waiting: set[tuple[str, str]] = {("run_id", run.run_id)} if run is not None else set()
    waiting |= {("tool_call_id", one.tool_call_id) for one in calls if one.stage == "dispatched"}
    # The last effect of each id: an id may be used again once its call is settled.
    newest = {
        (name, effect[name]): effect_id
        for effect_id, effect in folded.effects.items()
        for name in ("run_id", "tool_call_id")
        if effect["context_id"] == state.context_id and effect["effect"] != "cancel" and effect.get(name)
    }
    return {newest[one] for one in waiting & newest.keys()}


def _step(folded: FoldedTopic, folding: Folding, logged: LoggedFrame, payload: str, every: int) -> None:
    before = folding.state
    step = folding.step(logged.frame)
    assert step is not None
    version = int(step.state.version)
    folded.frames.append(
        (logged.context_id, version, frame_uuid(logged.frame_id), step.outcome, step.reason, payload)
    )
    for effect in react(before, logged.frame, step.state, frame_uuid(logged.frame_id)):
        folded.effects[effect.id] = to_wire(effect)
    if version % every == 0:
        folded.contexts[logged.context_id, version] = folding.conversation().context.to_wire()


def die(database: str, topic: str, partition: int, attempt: str = "batch") -> None:
    """Own a partition, note the beginning of an attempt there, and disconnect without ending it."""

    async def run():
        async with await psycopg.AsyncConnection.connect(database, autocommit=True) as connection:
            taken = await projections.assign(connection, topic, partition, f"who died {next(_owners)}")
            await projections.note_attempt(connection, topic, attempt, {partition: taken.epoch})
            return connection.info.backend_pid

    until_session_gone(database, asyncio.run(run()))


@contextmanager
def owning(database: str) -> Iterator[None]:
    """Yields a session that owns every partition according to the tables, and reads nothing."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(
            "UPDATE projections SET owner_pid = pid, owner_started_at = backend_start, effects_held_until = NULL "
            "FROM pg_stat_get_activity(pg_backend_pid())"
        )
        yield


def until_session_gone(database: str, pid: int) -> None:
    """Wait until the database has noticed that a session's client is gone."""
    until = time.monotonic() + ON_SERVERS
    with psycopg.connect(database, autocommit=True) as connection:
        while value_of(connection, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = %s)", pid):
            assert time.monotonic() < until
            pause()


def histories(suffix: str, names: Iterable[str] | None = None) -> list[Raw]:
    """Returns recorded conversations under new names, interleaved frame by frame."""
    chosen = [path for path in HISTORIES if names is None or path.stem in set(names)]
    lines = [_renamed(path.read_bytes(), path.stem, f"{path.stem}-{suffix}") for path in chosen]
    return [one for turn in itertools.zip_longest(*lines) for one in turn if one is not None]


def _renamed(history: bytes, name: str, new_name: str) -> list[Raw]:
    """Returns a history as that of another context, with the run ids that are derived from the new name."""
    lines = history.splitlines()
    for version in range(1, len(lines) + 1):
        old, new = (derived.run_id(ContextId(one), Version(version)) for one in (name, new_name))
        history = history.replace(old.encode(), new.encode())
    return [Raw(new_name.encode(), line) for line in history.splitlines()]


def mixed(suffix: str, names: Iterable[str] | None = None) -> list[Raw]:
    """Returns recorded conversations, interspersed with everything unusual that a topic can have: a frame in the wrong
    partition, a duplicate, an id that is used twice, and bytes that are not a frame."""
    records = histories(suffix, names)
    key = f"between-{suffix}".encode()
    home = partition_for(key, PARTITIONS)
    run = b'{"type":"LLMRunFrame","id":"%s"}'
    between = [
        Raw(key, run % b"a"),
        Raw(key, run % b"b", partition=(home + 1) % PARTITIONS),
        Raw(key, b"no frame"),
        Raw(key, run % b"a"),
        Raw(key, b'{"type":"LLMTextFrame","text":"x","id":"a"}'),
        Raw(None, run % b"c"),
    ]
    for number, one in enumerate(between):
        records.insert((number + 1) * len(records) // (len(between) + 1), one)
    return records


def _logged(record: Record) -> LoggedFrame | None:
    try:
        return read(record)
    except DecodeError:
        return None


def _effect_topics(names: TopicNames) -> list[tuple[str, str]]:
    return [
        ("run_inference", names.inference),
        ("call_function", names.function_calls),
        ("cancel", names.cancellations),
    ]


async def _all_records(settings: Settings, topic: str) -> list[Record]:
    places = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
    client = consumer(settings)
    await client.start()
    try:
        async with asyncio.timeout(ON_SERVERS):
            ends = await client.end_offsets(places)
            client.assign(places)
            for place in places:
                client.seek(place, 0)
            found: dict[Any, list[Record]] = {place: [] for place in places}
            while any([await client.position(place) < ends[place] for place in places]):
                for place, some in (await client.getmany(timeout_ms=100)).items():
                    found[place] += map(to_record, some)
    finally:
        await client.stop()
    return [record for place in places for record in found[place]]


FEW = ("barge-in", "tool-changes", "history-replaced", "failed-runs", "safe-to-retry", "slow-research")
"""Conversations that need every statement, with few frames."""
