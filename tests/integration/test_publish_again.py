"""Publishing again after an error stores nothing twice, also if the database is killed meanwhile."""

import asyncio
import json
from contextlib import contextmanager

import pytest
from pydantic import SecretStr
from tests.bounds import ON_SERVERS, PROGRAM, scaled
from tests.support.projecting import projecting
from tests.support.tiers import long

from frameledger.frames import LLMMessagesAppendFrame
from frameledger_services.client import (
    Client,
    FramesUnacknowledgedError,
    NotVisibleError,
    PublishedFrame,
    SyncClient,
)
from frameledger_services.embedded import ports, postgres
from frameledger_services.embedded.running import start, stop, wait_until_ready
from frameledger_services.settings import SettingsError
from frameledger_services.store import migration

CHARGE = [{"role": "user", "content": "charge my card"}]


class Mortal:
    """A PostgreSQL of its own that is killed with SIGKILL, and begins again."""

    def __init__(self, directory):
        self.server = postgres.prepare(directory, ports.choose(0), settings={"fsync": "off"})
        self.rise()
        migration.migrate(self.server.dsn)

    def rise(self):
        self._process = start(self.server.program)
        wait_until_ready(self.server.program, self._process)

    def kill(self):
        self._process.kill()
        self._process.wait()

    def stop(self):
        stop(self.server.program, self._process)


@contextmanager
def mortal(directory):
    made = Mortal(directory)
    try:
        yield made
    finally:
        made.stop()


def as_an_object():
    frame = LLMMessagesAppendFrame(messages=CHARGE)
    return lambda _: [frame]


def as_a_mapping():
    mapping = {"type": "LLMMessagesAppendFrame", "messages": CHARGE}
    return lambda _: [mapping]


def as_the_error_has_it():
    frame = LLMMessagesAppendFrame(messages=CHARGE)
    return lambda error: [frame] if error is None else error.frames


@pytest.mark.regression("journey 1")
@pytest.mark.parametrize("given", [as_an_object, long(as_a_mapping), long(as_the_error_has_it)])
def test_a_publisher_who_tries_again_while_the_database_is_killed_says_nothing_twice(log, tmp_path, given):
    async def scenario(settings, database):
        frames, errors = given(), list[NotVisibleError]()
        async with projecting(settings), Client(settings) as client:
            await client.publish("ctx-1", LLMMessagesAppendFrame(messages=[]), wait=True, within=ON_SERVERS)
            await asyncio.to_thread(database.kill)
            said: tuple[PublishedFrame, ...] = ()
            while not said:
                patience = scaled(0.5) if len(errors) < 3 else ON_SERVERS
                try:
                    said = await client.publish(
                        "ctx-1", *frames(errors[-1] if errors else None), wait=True, within=patience
                    )
                except FramesUnacknowledgedError:
                    # The broker is available, and was slower than the timeout.
                    continue
                except NotVisibleError as error:
                    errors.append(error)
                    if len(errors) == 3:
                        await asyncio.to_thread(database.rise)
            return errors, said[0], await client.context("ctx-1")

    with mortal(tmp_path) as database:
        settings = log.model_copy(update={"database_url": SecretStr(database.server.dsn)})
        errors, said, stored = asyncio.run(scenario(settings, database))
    assert len(errors) >= 3
    for error in errors:
        assert [frame.messages for frame in error.frames] == [tuple(CHARGE)]
        assert len(error.places) == 1
    assert len({error.frames[0].id for error in errors} - {None}) == 1
    assert "does not answer" in str(errors[-1])
    assert stored.context.to_wire()["messages"] == CHARGE
    assert stored.version == 2
    assert (said.version, said.outcome, said.repeated) == (2, "applied", True)


@pytest.mark.long
@pytest.mark.regression("journey 1")
def test_a_database_that_is_away_is_waited_for(log, tmp_path):
    async def scenario(settings, database):
        async with projecting(settings), Client(settings) as client:
            await client.publish("ctx-1", LLMMessagesAppendFrame(messages=[]), wait=True, within=ON_SERVERS)
            await asyncio.to_thread(database.kill)
            async with asyncio.TaskGroup() as tasks:
                frame = LLMMessagesAppendFrame(messages=CHARGE)
                publishing = tasks.create_task(client.publish("ctx-1", frame, wait=True, within=PROGRAM))
                await asyncio.to_thread(database.rise)
            return publishing.result()

    with mortal(tmp_path) as database:
        settings = log.model_copy(update={"database_url": SecretStr(database.server.dsn)})
        (said,) = asyncio.run(scenario(settings, database))
    assert (said.version, said.outcome, said.repeated) == (2, "applied", False)


@pytest.mark.regression("journey 6")
def test_who_waits_is_told_what_became_of_each_frame(log, database):
    settings = log.model_copy(update={"database_url": SecretStr(database)})

    async def scenario():
        async with projecting(settings), Client(settings) as client:
            first = await client.publish(
                "ctx-1",
                {"type": "LLMMessagesAppendFrame", "messages": CHARGE},
                ['{"type": "LLMTextFrame", "text": "late"}', {"type": "SomethingNewFrame", "id": "mine"}],
                wait=True,
                within=ON_SERVERS,
            )
            again = await client.publish(
                "ctx-1",
                {"type": "SomethingNewFrame", "id": "mine", "produced_at": first[2].type},
                {"type": "LLMTextFrame", "text": "other", "id": "mine"},
                wait=True,
                within=ON_SERVERS,
            )
            return first, again

    first, (_, other) = asyncio.run(scenario())
    assert [(one.version, one.outcome, one.reason) for one in first] == [
        (1, "applied", None),
        (2, "ignored", "no_open_response"),
        (3, "unknown", None),
    ]
    assert [one.type for one in first] == ["LLMMessagesAppendFrame", "LLMTextFrame", "SomethingNewFrame"]
    assert first[2].frame_id == "mine"
    assert (other.version, other.outcome, other.reason) == (None, "rejected", "id_reused")


@pytest.mark.regression("journey 6")
def test_a_frame_that_was_published_before_is_told_with_its_first_version(log, database):
    settings = log.model_copy(update={"database_url": SecretStr(database)})

    async def scenario():
        frame = LLMMessagesAppendFrame(messages=CHARGE, id="order-18", produced_at="2026-01-01T00:00:00Z")
        async with projecting(settings), Client(settings) as client:
            return [(await client.publish("ctx-1", frame, wait=True, within=ON_SERVERS))[0] for _ in range(3)]

    told = asyncio.run(scenario())
    assert [(one.version, one.outcome, one.repeated) for one in told] == [
        (1, "applied", False),
        (1, "applied", True),
        (1, "applied", True),
    ]


@pytest.mark.regression("journey 4")
def test_without_a_database_waiting_is_refused_before_anything_is_published(log):
    async def scenario():
        async with Client(log) as client:
            for waits in (
                client.publish("ctx-1", LLMMessagesAppendFrame(messages=CHARGE), wait=True),
                anext(client.follow("ctx-1")),
            ):
                with pytest.raises(SettingsError, match="DATABASE_URL"):
                    await waits
            return await client.publish("ctx-1", LLMMessagesAppendFrame(messages=CHARGE))

    (place,) = asyncio.run(scenario())
    assert place.offset == 0
    with SyncClient(log) as client:
        with pytest.raises(SettingsError, match="DATABASE_URL"):
            client.publish("ctx-1", LLMMessagesAppendFrame(messages=CHARGE), wait=True)
        with pytest.raises(SettingsError, match="DATABASE_URL"):
            next(client.follow("ctx-1"))


@pytest.mark.regression("journey 23")
def test_a_client_works_without_a_block_and_is_closed(log, database):
    settings = log.model_copy(update={"database_url": SecretStr(database)})

    async def scenario():
        async with projecting(settings):
            client = Client(settings)
            (said,) = await client.publish(
                "ctx-1", LLMMessagesAppendFrame(messages=CHARGE), wait=True, within=ON_SERVERS
            )
            assert (await client.context("ctx-1", said.version)).version == 1
            await client.close()
            await client.close()
            with pytest.raises(RuntimeError, match="closed"):
                await client.publish("ctx-1", LLMMessagesAppendFrame(messages=CHARGE))
            with pytest.raises(RuntimeError, match="closed"):
                await client.context("ctx-1")

    asyncio.run(scenario())


@pytest.mark.regression("journey 6")
def test_the_command_that_waits_prints_what_became_of_each_frame(log, database, command):
    settings = log.model_copy(update={"database_url": SecretStr(database)})

    def publish(*frames):
        return command(settings, "publish", "ctx-1", *frames, "--wait", "--within", f"{ON_SERVERS:g}")

    async def scenario():
        async with projecting(settings):
            fine = await asyncio.to_thread(
                publish,
                '{"type": "LLMMessagesAppendFrame", "messages": [], "run_lm": true, "id": "a"}',
                '{"type": "LLMTextFrame", "text": "late", "id": "b"}',
                '{"type": "LLMTxtFrame", "text": "late", "id": "c"}',
            )
            rejected = await asyncio.to_thread(
                publish, '{"type": "LLMTextFrame", "text": "other", "id": "b"}'
            )
            as_json = await asyncio.to_thread(
                publish, '{"type": "LLMTextFrame", "text": "late", "id": "d"}', "--json"
            )
            erased = await asyncio.to_thread(publish, '{"type": "LLMContextEraseFrame", "why": "request 17"}')
            return fine, rejected, as_json, erased

    fine, rejected, as_json, erased = asyncio.run(scenario())
    assert fine.exit_code == 0, fine.output
    *each, total = fine.stdout.splitlines()
    assert each == [
        "LLMMessagesAppendFrame a is version 1: applied",
        "LLMTextFrame b is version 2: ignored, no_open_response",
        "LLMTxtFrame c is version 3: unknown",
    ]
    assert "1 applied, 1 ignored, 1 unknown. The conversation is at version 3." in total
    assert fine.stderr.splitlines() == [
        "Warning: LLMMessagesAppendFrame has no field 'run_lm': did you mean 'run_llm'?",
        "Warning: LLMTxtFrame is not a type of frame that this release knows: did you mean LLMTextFrame?",
    ]
    assert rejected.exit_code == 1
    assert rejected.stdout.startswith("LLMTextFrame b rejected, id_reused\n")
    told = json.loads(as_json.stdout)
    assert (told["version"], told["outcome"], told["reason"]) == (4, "ignored", "no_open_response")
    assert "1 applied. The conversation has no frames." in erased.stdout
