"""The contract of clients, for `Client`, which uses Kafka and PostgreSQL, and `HttpClient`, which uses a gateway: the
same frames, answers and errors, on one set of servers.

Features of only one of them are tested in `integration/test_client.py` and `unit/test_http_client.py`.
"""

import asyncio
import itertools
import re
import signal
from contextlib import aclosing, suppress
from uuid import UUID

import pytest
from tests.bounds import ON_SERVERS, scaled
from tests.support.databases import made as database
from tests.support.gateway import running
from tests.support.killable import projector
from tests.support.pipeline import Raw, histories, made

from frameledger.context import LLMContext
from frameledger.frames import (
    LLMContextEraseFrame,
    LLMMessagesAppendFrame,
    LLMMessagesUpdateFrame,
    LLMRunFrame,
    LLMTextFrame,
    LLMUpdateSettingsFrame,
)
from frameledger.record import MAX_VALUE_BYTES, decode
from frameledger.tools import FunctionSchema, ToolsSchema
from frameledger_services.client import (
    Client,
    ContextChangedError,
    ContextErasedError,
    EncodedFrame,
    FramesUnacknowledgedError,
    HttpClient,
    MisspelledWarning,
    NoSuchContextError,
    NoSuchVersionError,
    NotVisibleError,
    RepeatedWarning,
    SyncClient,
    SyncHttpClient,
)
from frameledger_services.embedded import ports

RECORDED = ("barge-in", "parallel-tools", "history-replaced")

_numbers = itertools.count(1)


class Servers:
    """A broker, a database, a projector and a gateway."""

    def __init__(self, pipeline, projecting, url):
        self.pipeline = pipeline
        self.projecting = projecting
        self.url = url

    def client(self, kind, **also):
        return kind(self.pipeline.settings, **also) if kind in (Client, SyncClient) else kind(self.url)

    def values(self, context_id):
        """The values of the records of a conversation, and their headers."""
        return [
            (one.value, dict(one.headers))
            for one in self.pipeline.records()
            if one.key == context_id.encode()
        ]


@pytest.fixture(scope="module")
def servers(kafka, database_server, migrated_template):
    with database(database_server, template=migrated_template) as (_, address):
        pipeline = made(kafka.bootstrap_servers, address, None)
        with projector(pipeline.settings) as projecting:
            also = {
                "gateway_port": str(ports.choose(0)),
                "gateway_requests_per_sec": "1000000",
                "gateway_burst": "1000000",
            }
            with running(pipeline.settings, **also) as gateway:
                yield Servers(pipeline, projecting, gateway.address)
            assert projecting.stop() == 0


@pytest.fixture(params=[Client, HttpClient])
def kind(request):
    return request.param


@pytest.fixture(params=[SyncClient, SyncHttpClient])
def sync_kind(request):
    return request.param


@pytest.fixture
def context_id():
    return f"contract-{next(_numbers)}"


@pytest.fixture
def use(servers, kind):
    """Runs `work(client)` with a client of one of the kinds."""

    def use(work):
        async def run():
            async with asyncio.timeout(2 * ON_SERVERS), servers.client(kind) as client:
                return await work(client)

        return asyncio.run(run())

    return use


def append(words):
    return LLMMessagesAppendFrame(messages=[{"role": "user", "content": words}])


def told(published):
    return [(one.type, one.version, one.outcome, one.reason, one.repeated) for one in published]


def test_what_is_published_lies_on_the_log_byte_for_byte_and_says_what_caused_it(servers, use, context_id):
    strange = (
        b'{ "type":"LLMRunFrame",\r\n\t"id" : "strange", "mine":1.0e2, "big": %d, "half":"\\ud83d" }' % 2**70
    )
    cause = "the cause: \u00fc/%"

    async def work(client):
        return await client.publish(
            context_id,
            LLMTextFrame(text="a", id="one"),
            {"type": "LLMTextFrame", "text": "\u00e9", "id": "two"},
            ['{"type": "Wink", "id": "three"}', EncodedFrame.of(strange)],
            traceparent="00-" + "a" * 32 + "-" + "b" * 16 + "-01",
            causation_id=cause,
        )

    published = use(work)
    records = servers.values(context_id)
    assert [decode(value).id for value, _ in records] == ["one", "two", "three", "strange"]
    assert records[3][0] == strange
    assert [one.frame_id for one in published] == ["one", "two", "three", "strange"]
    assert [one.type for one in published] == ["LLMTextFrame", "LLMTextFrame", "Wink", "LLMRunFrame"]
    assert {one.topic for one in published} == {servers.pipeline.names.frames}
    assert [one.offset for one in published] == list(range(published[0].offset, published[0].offset + 4))
    assert told(published) == [(one.type, None, None, None, False) for one in published]
    assert all(decode(value).produced_at for value, _ in records[:3])
    for _, headers in records:
        assert headers["traceparent"] == b"00-" + b"a" * 32 + b"-" + b"b" * 16 + b"-01"
        assert headers["fl_causation_id"] == cause.encode()


def test_who_waits_is_told_what_became_of_each_frame(use, context_id):
    async def work(client):
        first = await client.publish(
            context_id,
            append("hi"),
            [{"type": "LLMTextFrame", "text": "late", "id": "mine"}, '{"type": "SomethingNewFrame"}'],
            wait=True,
            within=ON_SERVERS,
        )
        second = await client.publish(
            context_id,
            {"type": "LLMTextFrame", "text": "other", "id": "mine"},
            append("and"),
            wait=True,
            within=ON_SERVERS,
        )
        later = await client.publish(context_id, append("later"))
        return first, second, later, await client.until_stored(context_id, later, within=ON_SERVERS)

    first, second, later, stored = use(work)
    assert told(first) == [
        ("LLMMessagesAppendFrame", 1, "applied", None, False),
        ("LLMTextFrame", 2, "ignored", "no_open_response", False),
        ("SomethingNewFrame", 3, "unknown", None, False),
    ]
    assert told(second) == [
        ("LLMTextFrame", None, "rejected", "id_reused", False),
        ("LLMMessagesAppendFrame", 4, "applied", None, False),
    ]
    assert stored == (replace_outcome(later[0], 5, "applied"),)


@pytest.mark.regression("journey 68")
def test_no_frames_are_published_and_stored_at_once(use):
    async def work(client):
        published = await client.publish("none", wait=True)
        return published, await client.until_stored("none", published)

    assert use(work) == ((), ())


def replace_outcome(published, version, outcome):
    return type(published)(
        published.topic,
        published.partition,
        published.offset,
        published.generation,
        published.frame_id,
        published.type,
        version,
        outcome,
    )


def test_to_publish_nothing_is_nothing(use, context_id):
    async def work(client):
        return [await client.publish(context_id, wait=wait) for wait in (True, False)]

    assert use(work) == [(), ()]


WRONG = [
    (("",), [LLMRunFrame()], {}),
    (("x" * 256,), [LLMRunFrame()], {}),
    (("a\x00b",), [LLMRunFrame()], {}),
    ((LLMRunFrame(),), [], {}),
    ((), [LLMUpdateSettingsFrame(settings={"temperature": float("nan")})], {}),
    ((), [LLMTextFrame(text="x" * MAX_VALUE_BYTES)], {}),
    ((), [LLMRunFrame], {}),
    ((), [None], {}),
    ((), ['{"type": "LLMTextFrame"}'], {}),
    ((), ["no JSON"], {}),
    ((), [{"type": "LLMTextFrame", "text": object()}], {}),
    ((), [LLMRunFrame()], {"causation_id": "x" * 256}),
    ((), [append("a"), append("b")], {"expected_version": 1}),
    ((), [append("a")], {"expected_version": -1}),
    ((), [LLMTextFrame(text="a")], {"expected_version": 1}),
]


@pytest.mark.parametrize("number", range(len(WRONG)))
def test_what_cannot_be_published_is_refused_in_the_same_words_before_anything_is(
    servers, context_id, number
):
    given, frames, options = WRONG[number]

    async def refused(kind):
        async with servers.client(kind) as client:
            with pytest.raises((TypeError, ValueError)) as raised:
                await client.publish(*(given or (context_id,)), LLMRunFrame(), *frames, **options)
            return type(raised.value), str(raised.value).partition("publish() was given LLMRunFrame")[0]

    said = [asyncio.run(refused(kind)) for kind in (Client, HttpClient)]
    assert said[0] == said[1]
    assert servers.values(context_id) == []


def test_what_is_misspelled_or_said_again_is_warned_of(use, context_id):
    async def work(client):
        with pytest.warns(MisspelledWarning, match="did you mean 'run_llm'"):
            await client.publish(
                context_id, {"type": "LLMMessagesAppendFrame", "messages": [], "run_lm": True}
            )
        said = append("once")
        await client.publish(context_id, said)
        with pytest.warns(RepeatedWarning, match="counts once"):
            return await client.publish(context_id, said, wait=True, within=ON_SERVERS)

    assert told(use(work)) == [("LLMMessagesAppendFrame", 2, "applied", None, True)]


def test_of_two_who_go_on_from_a_version_one_is_accepted(use, context_id):
    async def work(client):
        await client.publish(context_id, append("hi"), wait=True, within=ON_SERVERS)
        restored = await client.restore(context_id)
        summary = LLMMessagesUpdateFrame(messages=[])
        (won,) = await client.publish(
            context_id, summary, expected_version=restored.version, wait=True, within=ON_SERVERS
        )
        late = append("late")
        with pytest.raises(ContextChangedError) as changed:
            await client.publish(context_id, late, expected_version=1, wait=True, within=ON_SERVERS)
        (unseen,) = await client.publish(context_id, append("later"), expected_version=1)
        (unseen,) = await client.until_stored(context_id, [unseen], within=ON_SERVERS)
        with pytest.raises(ValueError, match="its outcome stays"):
            await client.publish(context_id, late, expected_version=2)
        return won, changed.value, unseen

    won, changed, unseen = use(work)
    assert (won.version, won.outcome) == (2, "applied")
    assert (changed.context_id, changed.expected, changed.newest) == (context_id, 1, 3)
    assert (changed.published.outcome, changed.published.reason) == ("ignored", "context_changed")
    assert (unseen.outcome, unseen.reason) == ("ignored", "context_changed")


def test_every_version_of_a_conversation_and_every_frame_read_alike(servers, context_id):
    names = [f"{name}-{context_id}" for name in RECORDED]
    said = b'"messages":[{"role":"user","content":"\\ud83d \xe2\x80\xa8"}],\r"n":%d' % 2**70
    odd = b'{"type":\r\n"LLMMessagesAppendFrame",\n%s}' % said
    servers.pipeline.publish(
        [
            *histories(context_id, RECORDED),
            Raw(context_id.encode(), odd),
            Raw(context_id.encode(), b'{"type":"LLMUpdateSettingsFrame","settings":{"seed":%d}}' % 2**70),
            Raw(context_id.encode(), b'{"type":"LLMEnablePromptCachingFrame","enable":true}'),
            Raw(context_id.encode(), b'{"type":"LLMConfigureOutputFrame","skip_tts":true}'),
        ]
    )
    servers.pipeline.until_idle(servers.projecting)

    async def read(kind):
        found = []
        async with servers.client(kind) as client:
            for name in (*names, context_id):
                newest = await client.newest_version(name)
                contexts = [await client.context(name, version) for version in range(newest + 1)]
                assert await client.context(name) == contexts[-1]
                assert await client.restore(name) == contexts[-1]
                frames = [frame async for frame in client.frames(name)]
                assert [frame async for frame in client.frames(name, newest - 1)] == frames[-1:]
                assert [frame.version for frame in frames] == list(range(1, newest + 1))
                found.append((newest, contexts, frames))
        return found

    by_sql, over_http = (asyncio.run(read(kind)) for kind in (Client, HttpClient))
    assert over_http == by_sql
    assert any(any(context.answers) for _, contexts, _ in over_http for context in contexts)
    newest, contexts, frames = over_http[-1]
    assert (newest, contexts[-1].prompt_caching, contexts[-1].skip_tts) == (4, True, True)
    assert contexts[-1].context.settings["seed"] == 2**70
    assert frames[0].payload == odd


@pytest.mark.regression("fault 240")
def test_what_is_not_there_is_an_error_of_its_own(use, context_id):
    async def work(client):
        await client.publish(context_id, append("hi"), wait=True, within=ON_SERVERS)
        nobody = f"nobody-{context_id}"
        for absent in (nobody, "", "x" * 300):
            with pytest.raises(NoSuchContextError) as unknown:
                await client.context(absent)
            assert unknown.value.context_id == absent
            assert await client.newest_version(absent) == 0
            assert [frame async for frame in client.frames(absent)] == []
        with pytest.raises(NoSuchContextError):
            await client.context(nobody, -1)
        for version in (-(10**30), -1, 2, 10**30):
            with pytest.raises(NoSuchVersionError, match="it has 0 to 1") as beyond:
                await client.context(context_id, version)
            assert (beyond.value.version, beyond.value.newest) == (version, 1)
        assert (await client.context(context_id, 0)).context == LLMContext()
        nothing = await client.restore(nobody)
        assert (nothing.context_id, nothing.version, nothing.context) == (nobody, 0, LLMContext())
        await client.publish(context_id, LLMContextEraseFrame(why="asked to"), wait=True, within=ON_SERVERS)
        with pytest.raises(NoSuchContextError):
            await client.context(context_id)
        assert await client.newest_version(context_id) == 0

    use(work)


@pytest.mark.regression("journey 127")
@pytest.mark.parametrize("version", [None, "1", 1.5])
def test_a_version_is_a_whole_number(use, context_id, version):
    """None is what a page's first request has as its `Last-Event-ID`: behind it nothing would ever come."""

    async def work(client):
        await client.publish(context_id, append("Hi."), append("More."), wait=True)
        for frames in (client.frames, client.follow):
            with pytest.raises(TypeError, match=f"integer of at least 0, not {version!r}"):
                await anext(frames(context_id, version))
        if version is not None:
            with pytest.raises(TypeError, match=f"integer of at least 0, not {version!r}"):
                await client.context(context_id, version)

    use(work)


@pytest.mark.regression("fault 264")
def test_no_frame_expects_a_version_that_is_no_whole_number(use, context_id):
    async def work(client):
        for version in ("1", 1.5):
            with pytest.raises(TypeError, match=f"integer of at least 0, not {version!r}"):
                await client.publish(context_id, append("Hi."), expected_version=version)
        assert await client.newest_version(context_id) == 0

    use(work)


@pytest.mark.regression("fault 264")
def test_frames_are_read_after_any_whole_number(use, context_id):
    async def work(client):
        await client.publish(context_id, append("Hi."), wait=True, within=ON_SERVERS)
        for after, count in ((-(10**30), 1), (-1, 1), (1, 0), (10**30, 0)):
            assert len([frame async for frame in client.frames(context_id, after)]) == count

    use(work)


@pytest.mark.parametrize("name", ["a/b", "..", ".", "%2F", "\u00fc \u2028?#&", "x" * 255])
def test_an_id_is_any_text(use, context_id, name, kind):
    # Both kinds on one log: each has a conversation of its own, but where the id has no room for that.
    own = name if name.strip(".") == "" or len(name) == 255 else f"{name}{context_id}"

    async def work(client):
        before = await client.newest_version(own)
        await client.publish(own, append("hi"), wait=True, within=ON_SERVERS)
        assert await client.newest_version(own) == before + 1
        assert (await client.context(own)).context.messages[-1] == {"role": "user", "content": "hi"}
        async with aclosing(client.follow(own, before)) as frames:
            assert (await anext(frames)).context_id == own
        return [frame.context_id async for frame in client.frames(own, before)]

    assert use(work) == [own]


def test_who_follows_gets_each_frame_once_whoever_says_it(servers, use, context_id):
    async def work(client):
        seen = []
        async with Client(servers.pipeline.settings) as other, aclosing(client.follow(context_id)) as frames:
            # It is not there yet.
            first = asyncio.create_task(anext(frames))
            await other.publish(context_id, append("one"), append("two"))
            seen += [await first, await anext(frames)]
            await other.publish(context_id, {"type": "EndFrame"}, wait=True, within=ON_SERVERS)
            seen.append(await anext(frames))
            await other.erase(context_id, why="asked to", within=ON_SERVERS)
            # A new life goes on after the erasure.
            await client.publish(context_id, append("born again"))
            seen.append(await anext(frames))
            assert seen[-1:] == [frame async for frame in client.frames(context_id)]
        return [(frame.version, frame.type, frame.outcome) for frame in seen]

    assert use(work) == [
        (1, "LLMMessagesAppendFrame", "applied"),
        (2, "LLMMessagesAppendFrame", "applied"),
        (3, "EndFrame", "applied"),
        (5, "LLMMessagesAppendFrame", "applied"),
    ]


@pytest.mark.regression("journey 86")
def test_a_conversation_that_was_erased_is_told_as_erased(servers, use, context_id):
    async def work(client):
        async with Client(servers.pipeline.settings) as other:
            await other.publish(context_id, append("one"), append("two"), wait=True, within=ON_SERVERS)
            await other.erase(context_id, why="request 17", within=ON_SERVERS)
        with pytest.raises(ContextErasedError, match="request 17") as raised:
            await client.context(context_id)
        return raised.value.context_id, raised.value.version, raised.value.why

    assert use(work) == (context_id, 3, "request 17")


def test_who_follows_from_a_version_gets_what_comes_after_it_also_from_one_that_is_not_there_yet(
    use, context_id
):
    async def work(client):
        await client.publish(context_id, *map(append, "abc"), wait=True, within=ON_SERVERS)
        async with aclosing(client.follow(context_id, 1)) as frames:
            assert [(await anext(frames)).version for _ in range(2)] == [2, 3]
        async with aclosing(client.follow(context_id, 4)) as frames:
            waiting = asyncio.create_task(anext(frames))
            await client.publish(context_id, *map(append, "de"), wait=True, within=ON_SERVERS)
            assert (await waiting).version == 5

    use(work)


def test_whoever_has_no_time_gets_the_frames_to_publish_them_again(use, context_id):
    async def work(client):
        with pytest.raises(FramesUnacknowledgedError) as late:
            await client.publish(context_id, LLMTextFrame(text="a"), LLMTextFrame(text="b"), within=1e-9)
        assert [frame.text for frame in late.value.frames] == ["a", "b"]
        assert None not in {frame.id for frame in late.value.frames}
        return await client.publish(context_id, *late.value.frames, wait=True, within=ON_SERVERS)

    assert [one.version for one in use(work)] == [1, 2]


async def waited_in_vain(client, context_id, said):
    """What a publisher is told of a frame that is on the log and not in the tables. It waits longer each time that the
    log itself, or a gateway, is too slow for it."""
    for seconds in (1.5, 5.0, 15.0, 45.0):
        with suppress(FramesUnacknowledgedError):
            with pytest.raises(NotVisibleError, match="Published, but ") as late:
                await client.publish(context_id, said, wait=True, within=scaled(seconds))
            if "unknown whether" not in str(late.value):
                assert re.match(r"Published, but not .*in the tables", str(late.value))
                return late.value
    raise AssertionError("it was told neither")


def test_who_waits_in_vain_is_told_where_it_lies_and_says_nothing_twice(servers, use, context_id):
    async def work(client):
        said = {"type": "LLMMessagesAppendFrame", "messages": [{"role": "user", "content": "once"}]}
        await client.publish(context_id, append("before"), wait=True, within=ON_SERVERS)
        servers.projecting.send(signal.SIGSTOP)
        try:
            late = await waited_in_vain(client, context_id, said)
            with pytest.raises(NotVisibleError):
                await client.until_stored(context_id, late.places, within=0.2)
        finally:
            servers.projecting.send(signal.SIGCONT)
        (again,) = await client.publish(context_id, said, wait=True, within=ON_SERVERS)
        (new,) = await client.publish(context_id, said, wait=True, within=ON_SERVERS)
        return late, again, new

    late, again, new = use(work)
    assert [frame.id for frame in late.frames] == [again.frame_id]
    assert (again.version, again.repeated) == (2, True)
    assert (new.version, new.repeated) == (3, False)
    (place,) = late.places
    assert (place.topic, place.partition) == (again.topic, again.partition)
    assert place.offset < again.offset


def test_many_frames_and_many_bytes_are_published_in_their_order(use, context_id):
    frames = [LLMTextFrame(text=str(number)) for number in range(700)]
    large = [LLMTextFrame(text="x" * (MAX_VALUE_BYTES // 4), id=f"large-{number}") for number in range(5)]

    async def work(client):
        many = await client.publish(context_id, *frames, wait=True, within=ON_SERVERS)
        heavy = await client.publish(f"{context_id}-heavy", large, wait=True, within=ON_SERVERS)
        stored = [frame.frame.text async for frame in client.frames(context_id)]
        return many, heavy, stored

    many, heavy, stored = use(work)
    assert [one.version for one in many] == list(range(1, 701))
    assert stored == [frame.text for frame in frames]
    assert [(one.frame_id, one.version) for one in heavy] == [
        (f"large-{number}", number + 1) for number in range(5)
    ]


def test_tools_are_set_in_every_form_that_a_context_takes(sync_kind, servers, context_id):
    look = FunctionSchema("look", "Looks.")
    with servers.client(sync_kind) as client:
        client.set_tools(context_id, ToolsSchema([look]), wait=True)
        assert client.context(context_id).context.to_wire()["tools"] == [look.to_openai()]
        with pytest.raises(TypeError, match="a tool is"):
            client.set_tools(context_id, [1])


def test_scripts_do_the_same_without_await(sync_kind, servers, context_id):
    with servers.client(sync_kind) as client:
        published = client.publish(context_id, append("hi"), append("ho"), causation_id=UUID(int=7))
        assert [one.version for one in client.until_stored(context_id, published, within=ON_SERVERS)] == [
            1,
            2,
        ]
        assert client.newest_version(context_id) == client.restore(context_id).version == 2
        assert [frame.version for frame in client.frames(context_id, 1)] == [2]
        for frame in client.follow(context_id):
            if frame.version == 2:
                break
    with pytest.raises(RuntimeError, match="closed"):
        client.context(context_id)


def test_a_client_that_is_closed_does_nothing_more(servers, kind, context_id):
    async def work():
        client = servers.client(kind)
        await client.close()
        await client.close()
        for call in (
            client.publish(context_id, LLMRunFrame()),
            client.context(context_id),
            client.newest_version(context_id),
            anext(client.frames(context_id)),
            anext(client.follow(context_id)),
        ):
            with pytest.raises(RuntimeError, match="closed"):
                await call

    asyncio.run(work())
