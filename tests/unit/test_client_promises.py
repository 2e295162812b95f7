"""The errors and values in the client's docstrings can be caught and created by callers."""

import asyncio
import builtins
import inspect
import multiprocessing
import os
import re
import warnings
from uuid import UUID

import psycopg
import pytest
from tests.bounds import PROGRAM
from tests.support.data_directories import running_in

from frameledger.frames import LLMRunFrame
from frameledger_services import client
from frameledger_services.client import (
    Client,
    ConfigurationError,
    DatabaseError,
    FrameledgerError,
    FramesRefusedError,
    FramesUnacknowledgedError,
    HttpClient,
    NoSuchContextError,
    NotPublishedError,
    RefusedError,
    Settings,
    SettingsError,
    SyncClient,
    TransientError,
)
from frameledger_services.event_log.producer import Producer
from frameledger_services.event_log.publish_errors import (
    RecordRefusedError,
    TooLargeError,
    UnacknowledgedError,
)
from frameledger_services.store.connections import failure

NAME = re.compile(r"\b\w+(?:Error|Warning)\b")
CLIENTS = [Client, SyncClient]


def documented(kind):
    texts = [inspect.getdoc(client), inspect.getdoc(kind)]
    texts += [
        inspect.getdoc(member)
        for name, member in inspect.getmembers(kind, inspect.isfunction)
        if name == "__init__" or not name.startswith("_")
    ]
    return {name for text in texts for name in NAME.findall(text)}


def test_the_docstrings_name_errors():
    assert {"BrokerError", "SchemaError", "ProviderError", "SettingsError"} <= documented(Client)


@pytest.mark.parametrize("name", sorted(documented(Client) | documented(SyncClient)))
def test_an_error_that_a_docstring_names_is_exported(name):
    if hasattr(builtins, name):
        return
    assert name in client.__all__
    kind = getattr(client, name)
    assert issubclass(kind, FrameledgerError | Warning)


def test_everything_that_is_exported_is_there():
    assert [name for name in client.__all__ if not hasattr(client, name)] == []


@pytest.mark.parametrize("kind", CLIENTS)
def test_without_settings_a_client_reads_the_environment(kind, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FRAMELEDGER_TOPIC_PREFIX", "mine.")
    made = kind()
    assert getattr(made, "_client", made)._settings.topic_prefix == "mine."
    monkeypatch.setenv("FRAMELEDGER_TOPIC_PREFX", "mine.")
    with pytest.raises(SettingsError, match="Did you mean FRAMELEDGER_TOPIC_PREFIX"):
        kind()
    if isinstance(made, SyncClient):
        made.close()


@pytest.mark.regression("journey 65")
def test_a_client_of_another_thread_says_after_a_fork_that_it_belongs_to_the_other_process():
    def in_the_child():
        with pytest.raises(RuntimeError, match="created before a fork"):
            made.newest_version("a")
        made.close()
        os._exit(7)

    with SyncClient(Settings()) as made, warnings.catch_warnings():
        # Python says that a process with threads should not be forked, which is what happens to preloading servers.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = multiprocessing.get_context("fork").Process(target=in_the_child)
        child.start()
        child.join(PROGRAM)
        child.kill()
        child.join()
    assert child.exitcode == 7


@pytest.mark.regression("journey 67")
@pytest.mark.parametrize("kind", [Client, HttpClient])
def test_what_cannot_be_a_conversation_is_one_that_does_not_exist(kind):
    async def work():
        made = kind(settings=Settings(url="http://127.0.0.1:9", database_url="postgresql://127.0.0.1:9/none"))
        async with made:
            for context_id in ("", "a\x00b", "x" * 2_000, "\ud800"):
                assert await made.newest_version(context_id) == 0
                assert [one async for one in made.frames(context_id)] == []
                for asked in (made.context(context_id), anext(made.follow(context_id))):
                    with pytest.raises(NoSuchContextError):
                        await asked

    asyncio.run(work())


@pytest.mark.regression("worker 140")
@pytest.mark.parametrize("kind", [Client, HttpClient])
@pytest.mark.parametrize("context_id", [UUID(int=17), b"ctx-1", None], ids=repr)
def test_an_id_that_is_no_text_is_a_type_error_of_each_reading(kind, context_id):
    async def run():
        settings = Settings(url="http://127.0.0.1:9", database_url="postgresql://127.0.0.1:9/none")
        async with kind(settings=settings) as made:
            for asked in (
                made.context(context_id),
                made.restore(context_id),
                made.newest_version(context_id),
                anext(made.frames(context_id)),
                anext(made.follow(context_id)),
            ):
                with pytest.raises(
                    TypeError, match=f"^A context id is text, not {re.escape(repr(context_id))}"
                ):
                    await asked

    asyncio.run(run())


@pytest.mark.regression("journey 96")
def test_what_cannot_be_a_conversation_is_neither_forked_nor_the_name_of_a_fork():
    async def work():
        async with Client(Settings(database_url="postgresql://127.0.0.1:9/none")) as made:
            with pytest.raises(NoSuchContextError):
                await made.fork("a\x00b", "new")
            with pytest.raises(ValueError, match="no NUL"):
                await made.fork("old", "a\x00b")

    asyncio.run(work())


def test_without_settings_a_client_finds_a_stack_that_runs_in_a_folder_above(monkeypatch, tmp_path):
    addresses = {"kafka_bootstrap_servers": "127.0.0.1:1", "database_url": "dbname=embedded"}
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    with running_in(tmp_path / ".frameledger", addresses):
        settings = Client()._settings
    assert settings.kafka_bootstrap_servers == "127.0.0.1:1"
    assert settings.database_url.get_secret_value() == "dbname=embedded"


@pytest.mark.parametrize(
    ("error", "kind", "to_do"),
    [
        (UnacknowledgedError, FramesUnacknowledgedError, TransientError),
        (RecordRefusedError, FramesRefusedError, RefusedError),
        (TooLargeError, FramesRefusedError, RefusedError),
    ],
)
def test_what_is_not_published_says_whether_to_try_again_and_has_the_frames(error, kind, to_do, monkeypatch):
    async def refuse(*_, **__):
        raise error("Not taken.", [None])

    async def published():
        await Client(Settings()).publish("ctx-1", LLMRunFrame())

    monkeypatch.setattr(Producer, "publish", refuse)

    with pytest.raises(NotPublishedError, match=r"Not taken\.") as raised:
        asyncio.run(published())
    assert type(raised.value) is kind
    assert isinstance(raised.value, to_do)
    assert [frame.type for frame in raised.value.frames] == ["LLMRunFrame"]


@pytest.mark.parametrize(
    ("error", "to_do"),
    [
        (psycopg.OperationalError("the connection is closed"), TransientError),
        (psycopg.errors.ReadOnlySqlTransaction("a standby"), TransientError),
        (psycopg.errors.InsufficientPrivilege("permission denied"), ConfigurationError),
    ],
)
def test_an_error_of_the_database_says_whether_to_try_again(error, to_do):
    ours = failure("The database", error)
    assert isinstance(ours, DatabaseError)
    assert isinstance(ours, to_do)
    assert str(ours).splitlines()[0] == f"The database: {error}"
