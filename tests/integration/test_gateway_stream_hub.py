"""Many streams of one process: their cost for the database, and their independence."""

import asyncio
import socket
from contextlib import AsyncExitStack

import psutil
import psycopg
import pytest
from tests.bounds import ON_SERVERS, scaled
from tests.support.batches import value_of
from tests.support.gateway import running
from tests.support.polling import look_again
from tests.support.streaming import HOST, NO_KAFKA, Browser, Talks, gateway, streaming, versions
from tests.support.turns import turns

from frameledger_services.embedded import ports
from frameledger_services.gateway.live import hub, stream_events, timed_send
from frameledger_services.settings import Settings
from frameledger_services.store import following

SESSIONS = """
    FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = 'frameledger-gateway'
"""


@pytest.fixture(name="settings")
def settings_of_its_own(database):
    return Settings(database_url=database, kafka_bootstrap_servers=NO_KAFKA)


@pytest.fixture(name="statements")
def each_statement(monkeypatch):
    """The conversations that each statement of the hub read."""
    statements = []
    read = following.read

    async def counted(connection, cursors, **limits):
        statements.append([cursor.context_id for cursor in cursors])
        return await read(connection, cursors, **limits)

    monkeypatch.setattr(following, "read", counted)
    return statements


NAMES = ["talk-0", "talk-1", "talk-2", "talk-3"]


@pytest.mark.regression("gateway 49")
def test_many_followers_cost_one_statement_and_only_those_are_woken_whose_conversation_goes_on(
    settings, statements, monkeypatch
):
    encoded = []
    encode = stream_events.frame
    # No follower is woken by a timeout, not even in the first second, before the first notification.
    monkeypatch.setattr(hub, "WAKE_SECONDS", ON_SERVERS)
    monkeypatch.setattr(hub, "UNNOTIFIED_WAKE_SECONDS", ON_SERVERS)

    def counting(frame):
        encoded.append(frame.version)
        return encode(frame)

    monkeypatch.setattr(stream_events, "frame", counting)

    async def main():
        hubs = hub.Hub(settings)
        names = NAMES
        async with Talks(settings.database_url.get_secret_value()) as talks, asyncio.TaskGroup() as tasks:
            for name in names:
                await talks.say(name, "one")
            running = tasks.create_task(hubs.run())
            async with asyncio.timeout(ON_SERVERS):
                followers = [hubs.follow(name, 0) for name in names for _ in range(50)]
                first = await asyncio.gather(*(one.next(ON_SERVERS) for one in followers))
                assert {chunk.version for chunk in first} == {1}
                assert len({id(chunk.data) for chunk in first}) == len(names)
                assert encoded == [1] * len(names)
                waiting = [asyncio.create_task(one.next(ON_SERVERS)) for one in followers]
                # The subscription wakes all followers once, and none afterwards.
                await turns()
                while not hubs.is_listening or any(one.has_news for one in followers):
                    await look_again()
                # Reads are sequential: when a new follower has its first chunk, the read for all others has ended.
                one_more = hubs.follow(names[0], 1)
                await one_more.next(ON_SERVERS)
                one_more.close()
                statements.clear()
                encoded.clear()
                await talks.say(names[1], "two", "three")
                second = await asyncio.gather(*waiting[50:100])
                assert {chunk.version for chunk in second} == {3}
                assert statements == [[names[1]]]
                assert encoded == [2, 3]
                assert not any(one.done() for one in waiting[:50] + waiting[100:])
                await talks.say(names[2], "two", notify=False)
                await talks.notify_of_anything()
                third = await asyncio.gather(*waiting[100:150])
                assert {chunk.version for chunk in third} == {2}
                hubs.close()
                assert set(await asyncio.gather(*waiting[:50], *waiting[150:])) == {None}
            running.cancel()

    asyncio.run(main())


def test_a_client_that_reads_nothing_holds_nobody_up_and_is_cut_off(settings, monkeypatch):
    sent = 0
    encode = stream_events.frame
    monkeypatch.setattr(timed_send, "SEND_SECONDS", scaled(0.5))

    def counting(frame):
        nonlocal sent
        sent += len(frame.payload)
        return encode(frame)

    monkeypatch.setattr(stream_events, "frame", counting)

    async def main():
        async with Talks(settings.database_url.get_secret_value()) as talks, gateway(settings) as port:
            frames, size = 60, 500_000
            for _ in range(frames):
                await talks.say("long", "x" * size)
            await talks.say("short", "one")
            with socket.socket() as slow:
                slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
                slow.connect((HOST, port))
                slow.sendall(b"GET /v1/contexts/long/stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
                async with streaming(port, "short") as stream:
                    await stream.until("head")
                    said = 1
                    async with asyncio.timeout(ON_SERVERS):
                        while not sent or is_served(slow):
                            said += 1
                            await talks.say("short", "more")
                            assert versions(await stream.until("head")) == [said]
                # At most what the kernel buffers, and two chunks.
                assert sent < frames * size / 2

    asyncio.run(main())


def is_served(client):
    """Returns whether this process still has the other end of a connection."""
    address = client.getsockname()
    return any(one.raddr == address for one in psutil.Process().net_connections("tcp4"))


def test_a_gateway_that_stops_ends_its_streams_at_once_and_in_order(settings):
    async def main():
        async with Talks(settings.database_url.get_secret_value()) as talks, AsyncExitStack() as stack:
            await talks.say("a", "one")
            async with gateway(settings) as port:
                stream = await stack.enter_async_context(streaming(port, "a"))
                await stream.until("head")
                reading = asyncio.create_task(rest_of(stream))
            assert await reading == []

    asyncio.run(main())


async def rest_of(stream):
    return [event async for event in stream]


def test_each_client_gets_each_version_once_and_in_order_though_gateway_and_sessions_are_killed(settings):
    names = NAMES[:3]
    address = settings.database_url.get_secret_value()
    port = ports.choose(0)

    async def main():
        async with Talks(address) as talks, asyncio.timeout(ON_SERVERS), asyncio.TaskGroup() as tasks:
            told = 0

            async def go_on():
                """Publish to all conversations, and wait until all followers have it."""
                nonlocal told
                for _ in range(10):
                    told += 1
                    for name in names:
                        await talks.say(name, "more")
                while any(browser.versions[-1:] != [told] for browser in browsers):
                    await look_again()

            browsers = [Browser(port, name) for name in names for _ in range(4)]
            following = [tasks.create_task(browser.run()) for browser in browsers]
            for name in names:
                await talks.say(name, "first")
            told += 1
            with running(settings, gateway_port=str(port)):
                await go_on()
                with psycopg.connect(address, autocommit=True) as connection:
                    # Wait for both sessions: the one that reads, and the one that listens.
                    while value_of(connection, f"SELECT count(*) {SESSIONS}") < 2:
                        await look_again()
                    connection.execute(f"SELECT pg_terminate_backend(pid) {SESSIONS}")
                await go_on()
                told += 1
                for name in names:
                    await talks.say(name, "more")
                # The end of the block kills the gateway in the middle of sending.
            with running(settings, gateway_port=str(port)):
                await go_on()
            for one in following:
                one.cancel()
        for browser in browsers:
            assert browser.connections >= 2
            assert browser.versions == list(range(1, told + 1))

    asyncio.run(main())
