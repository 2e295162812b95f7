"""A conversation as a stream of server-sent events: what a client gets, on a real PostgreSQL and real connections."""

import asyncio
from datetime import UTC, datetime

import httpx
import psycopg
import pytest
from tests.bounds import ON_SERVERS
from tests.support.batches import value_of
from tests.support.polling import look_again
from tests.support.streaming import HOST, NO_KAFKA, Browser, Talks, gateway, streaming, versions

from frameledger_services.gateway.access import tokens
from frameledger_services.gateway.live import event_stream, hub, streams
from frameledger_services.settings import Settings
from frameledger_services.store import following

ERASE = {"type": "LLMContextEraseFrame", "why": "asked to"}


@pytest.fixture(name="settings")
def settings_of_its_own(database):
    return Settings(database_url=database, kafka_bootstrap_servers=NO_KAFKA)


@pytest.fixture(name="run")
def with_a_gateway(settings):
    """Returns a function that runs `body(talks, port)` with a gateway, and conversations to write to."""

    def run(body):
        async def main():
            async with Talks(settings.database_url.get_secret_value()) as talks, gateway(settings) as port:
                await body(talks, port)

        asyncio.run(main())

    return run


async def status_of(port, context_id, query="", last=None):
    async with streaming(port, context_id, query, last) as stream:
        return stream.response.status_code


def test_a_stream_gives_every_frame_that_is_stored_and_then_each_that_comes(run, settings):
    async def body(talks, port):
        await talks.say("a", "one", "two")
        async with streaming(port, "a") as stream:
            assert stream.response.status_code == 200
            assert stream.response.headers["content-type"] == "text/event-stream; charset=utf-8"
            assert stream.response.headers["cache-control"] == "no-store"
            assert stream.response.headers["x-accel-buffering"] == "no"
            begin = await stream.until("head")
            assert [(event.name, event.id) for event in begin] == [
                ("frame", "1"),
                ("frame", "2"),
                ("head", "2"),
            ]
            assert stream.retry == 2000
            await talks.say("a", "three")
            assert versions(await stream.until("head")) == [3]
        with psycopg.connect(settings.database_url.get_secret_value()) as connection:
            row = connection.execute(
                "SELECT version, frame_id::text, type, outcome, reason, payload FROM frames WHERE version = 2"
            ).fetchone()
            status = value_of(connection, "SELECT status FROM conversations")
        async with httpx.AsyncClient(base_url=f"http://{HOST}:{port}", verify=False) as http:
            page = (await http.get("/v1/contexts/a/frames")).json()["frames"]
        assert [event.data for event in begin[:2]] == page[:2]
        about = begin[1].data
        assert tuple(about[name] for name in ("version", "id", "type", "outcome", "reason", "frame")) == row
        assert about["logged_at"].endswith("Z")
        assert begin[2].data == {"version": 2, "status": status, "open_run_id": None}

    run(body)


@pytest.mark.parametrize(
    ("query", "last", "expected"),
    [
        ("", None, [1, 2, 3]),
        ("?after=1", None, [2, 3]),
        ("?after=1", "2", [3]),
        ("?after=3", None, []),
        ("?after=now", None, []),
        ("?types=LLMRunFrame,UserStartedSpeakingFrame", None, [2]),
        pytest.param(
            "?types=LLMRunFrame,%20UserStartedSpeakingFrame",
            None,
            [2],
            marks=pytest.mark.regression("gateway 111"),
        ),
    ],
)
def test_a_stream_begins_where_its_client_says(run, query, last, expected):
    async def body(talks, port):
        await talks.say("a", "one")
        await talks.frames("a", {"type": "UserStartedSpeakingFrame"})
        await talks.say("a", "three")
        async with streaming(port, "a", query, last) as stream:
            events = await stream.until("head")
            assert versions(events) == expected
            # A client that is disconnected now resumes after the newest version, although no frame told it that
            # version.
            assert events[-1].id == "3"

    run(body)


def test_an_id_may_have_a_slash_and_a_value_may_have_ends_of_lines(run):
    async def body(talks, port):
        value = b'{"type":\n"LLMMessagesAppendFrame",\r\n"messages":[{"role":"user","content":"a\\nb \xe2\x80\xa8"}]}'
        await talks.frames("acme/ctx 1", value)
        async with streaming(port, "acme%2Fctx%201") as stream:
            (frame, _) = await stream.until("head")
            assert frame.data["raw"].encode() == value
            assert frame.data["frame"]["messages"] == [{"role": "user", "content": "a\nb \u2028"}]

    run(body)


@pytest.mark.parametrize(
    ("query", "last"),
    [("?after=-1", None), ("?after=soon", None), ("?after=9223372036854775808", None), ("", "1.5")],
)
def test_a_version_that_is_none_is_refused(run, query, last):
    async def body(talks, port):
        await talks.say("a", "one")
        assert await status_of(port, "a", query, last) == 400

    run(body)


def test_a_conversation_that_is_not_there_is_not_found_and_one_that_is_over_has_no_content(run):
    async def body(talks, port):
        assert await status_of(port, "a") == 404
        assert await status_of(port, "a", last="3") == 404
        await talks.say("a", "one")
        await talks.frames("a", {"type": "EndFrame"})
        assert await status_of(port, "a", last="2") == 204
        assert await status_of(port, "a", "?after=now") == 204
        async with streaming(port, "a", last="1") as stream:
            # The stored frames are sent first, and meanwhile the conversation may be opened again.
            assert (await stream.until("head", 2))[-1].data["status"] == "ended"
            await talks.say("a", "again")
            assert versions(await stream.until("head")) == [3]

    run(body)


def test_a_client_that_is_ahead_of_the_tables_is_reset_and_gets_everything(run):
    async def body(talks, port):
        await talks.say("a", "one", "two")
        async with streaming(port, "a", last="7") as stream:
            events = await stream.until("head", 2)
            assert [event.name for event in events] == ["reset", "frame", "frame", "head"]
            assert events[0].data == {"newest": 2}
            assert events[0].id == "0"
            assert versions(events) == [1, 2]

    run(body)


def test_an_erasure_ends_the_stream_and_nothing_comes_back(run):
    async def body(talks, port):
        await talks.say("a", "one", "two")
        async with asyncio.timeout(ON_SERVERS), asyncio.TaskGroup() as tasks:
            browser = Browser(port, "a")
            running = tasks.create_task(browser.run())
            while browser.versions != [1, 2]:
                await look_again()
            await talks.frames("a", ERASE)
            # It ends when it is told 204.
            await running
        assert [event.name for event in browser.events] == ["frame", "frame", "head", "gone"]
        assert browser.events[-1].data == {"version": 3}
        assert browser.connections == 2
        # A client that was disconnected during the erasure is told too, once.
        async with streaming(port, "a", last="1") as stream:
            assert [event.name async for event in stream] == ["gone"]
        assert await status_of(port, "a") == 204

    run(body)


def test_a_new_life_of_an_erased_conversation_goes_on_in_the_same_stream(run):
    async def body(talks, port):
        await talks.say("a", "one")
        async with streaming(port, "a") as stream:
            await stream.until("head")
            # In one batch: a read between the two frames would end the stream.
            again = {
                "type": "LLMMessagesAppendFrame",
                "messages": [{"role": "user", "content": "born again"}],
            }
            await talks.frames("a", ERASE, again)
            events = await stream.until("head", 3)
            assert [(event.name, event.id) for event in events] == [
                ("gone", "2"),
                ("frame", "3"),
                ("head", "3"),
            ]
        async with streaming(port, "a") as stream:
            assert [event.name for event in await stream.until("head")] == ["frame", "head"]

    run(body)


def test_who_waits_is_given_what_comes_to_a_conversation_that_is_not_there(run):
    async def body(talks, port):
        async with streaming(port, "a", "?wait=1") as stream:
            assert stream.response.status_code == 200
            await talks.say("a", "one")
            assert versions(await stream.until("head")) == [1]
            await talks.frames("a", {"type": "EndFrame"}, ERASE)
            assert (await stream.until("gone"))[-1].id == "3"
            # After a notification without positions it reads again, but sends no event twice.
            await talks.notify_of_anything()
            await talks.say("a", "born again")
            assert [event.name for event in await stream.until("head", 4)] == ["frame", "head"]
            await talks.frames("a", {"type": "EndFrame"})
            await stream.until("head", 5)
        async with streaming(port, "a", "?wait=1", last="5") as stream:
            assert [event.name for event in await stream.until("head")] == ["head"]
            await talks.say("a", "reopened")
            assert versions(await stream.until("head", 6)) == [6]

    run(body)


def test_a_token_without_words_gets_the_events_of_a_stream_without_words(settings, tmp_path):
    file = tmp_path / "tokens.json"
    token = tokens.create(file, "auditor", ("read",), redact=True, now=datetime.now(UTC))[1]
    with_tokens = settings.model_copy(update={"gateway_tokens_file": file})

    async def main():
        async with (
            Talks(settings.database_url.get_secret_value()) as talks,
            gateway(with_tokens) as port,
        ):
            await talks.say("a", "the PIN is 4711")
            assert await status_of(port, "a") == 401
            async with streaming(port, "a", token=token) as stream:
                frame, head = await stream.until("head")
                assert (frame.name, frame.id, stream.retry) == ("frame", "1", 2000)
                assert (frame.data["version"], frame.data["place"]["generation"]) == (1, 1)
                (message,) = frame.data["frame"]["messages"]
                assert message == {"role": "user", "content": {"redacted": True, "bytes": 15}}
                assert head.data["version"] == 1
                # A payload with line breaks is also sent as raw text, which is redacted as a whole.
                await talks.frames("a", b'{"type":\r\n"LLMTextFrame","text":"4711"}')
                (late, _) = await stream.until("head")
                assert late.data["frame"]["text"] == {"redacted": True, "bytes": 4}
                assert late.data["raw"]["redacted"] is True
                tokens.revoke(file, "auditor")
                await talks.say("a", "more")
                assert [event async for event in stream] == []

    asyncio.run(main())


def test_what_is_not_notified_is_found_by_looking(run, monkeypatch):
    monkeypatch.setattr(hub, "WAKE_SECONDS", 0.05)

    async def body(talks, port):
        await talks.say("a", "one")
        async with streaming(port, "a") as stream:
            await stream.until("head")
            await talks.say("a", "two", notify=False)
            assert versions(await stream.until("head")) == [2]

    run(body)


def test_a_stream_has_heartbeats_and_an_end_after_which_its_client_goes_on(run, monkeypatch):
    monkeypatch.setattr(event_stream, "HEARTBEAT_SECONDS", 0.02)
    monkeypatch.setattr(event_stream, "MAX_STREAM_SECONDS", 0.2)

    async def body(talks, port):
        await talks.say("a", "one")
        async with streaming(port, "a") as stream:
            assert [event.name async for event in stream] == ["frame", "head"]
            assert set(stream.comments) == {"heartbeat"}
        async with asyncio.timeout(ON_SERVERS), asyncio.TaskGroup() as tasks:
            browser = Browser(port, "a")
            running = tasks.create_task(browser.run())
            for number in range(2, 8):
                connections = browser.connections
                await talks.say("a", str(number))
                while browser.versions[-1:] != [number] or browser.connections == connections:
                    await look_again()
            running.cancel()
        assert browser.versions == [1, 2, 3, 4, 5, 6, 7]

    run(body)


def test_a_process_has_so_many_streams_and_no_more(run, monkeypatch):
    monkeypatch.setattr(hub, "MAX_FOLLOWERS", 1)

    async def body(talks, port):
        await talks.say("a", "one")
        async with streaming(port, "a") as stream:
            await stream.until("head")
            assert await status_of(port, "a") == 429
        async with asyncio.timeout(ON_SERVERS):
            while await status_of(port, "a", "?after=now") == 429:
                await look_again()

    run(body)


def test_a_long_conversation_is_read_in_pieces_of_some_frames_and_some_bytes(run, monkeypatch):
    sizes: list[tuple[int, int]] = []
    read = following.read

    async def counted(*arguments, **limits):
        readings = await read(*arguments, **limits)
        for one in readings:
            sizes.append((len(one.frames), len(b"".join(frame.payload or b"" for frame in one.frames))))
        return readings

    monkeypatch.setattr(following, "read", counted)
    monkeypatch.setattr(hub, "MAX_FRAMES", 10)
    monkeypatch.setattr(hub, "MAX_BYTES", 100_000)

    async def body(talks, port):
        # Texts that compress well count with their full size.
        await talks.say("a", *(["short"] * 25), *(["long" * 10_000] * 25))
        async with streaming(port, "a") as stream:
            assert versions(await stream.until("head")) == list(range(1, 51))
        assert max(frames for frames, _ in sizes) == 10
        assert 100_000 < max(size for _, size in sizes) < 100_000 + 50_000

    run(body)


def test_without_the_database_a_new_client_is_told_so_and_one_that_resumes_waits(monkeypatch):
    settings = Settings(database_url="postgresql://127.0.0.1:1/nowhere", kafka_bootstrap_servers=NO_KAFKA)
    monkeypatch.setattr(streams, "FIRST_SECONDS", 0.05)
    monkeypatch.setattr(event_stream, "HEARTBEAT_SECONDS", 0.05)

    async def main():
        async with gateway(settings) as port:
            assert await status_of(port, "a") == 503
            async with asyncio.timeout(ON_SERVERS), streaming(port, "a", last="7") as stream:
                assert stream.response.status_code == 200
                lines = stream.response.aiter_lines()
                assert [await anext(lines) for _ in range(3)] == ["retry: 2000", "", ": heartbeat"]

    asyncio.run(main())
