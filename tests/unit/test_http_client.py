"""The HTTP client against a fake gateway with scripted responses, on a socket of its own."""

import asyncio
import json
import re
import shutil
import ssl
import subprocess
from contextlib import aclosing, suppress
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.bounds import IN_PROCESS, scaled
from tests.support.polling import look_again
from tests.support.processor_time import assert_proportional

from frameledger.frames import LLMRunFrame, LLMTextFrame
from frameledger.record import MAX_VALUE_BYTES
from frameledger_services import supervision
from frameledger_services.agents_sdk.publishing import Publishing
from frameledger_services.client import (
    FramesRefusedError,
    FramesUnacknowledgedError,
    GatewayAnswerError,
    GatewayUnavailableError,
    HttpClient,
    NoSuchContextError,
    NotPermittedError,
    NotVisibleError,
    SchemaError,
    Settings,
    SettingsError,
    delivery,
)
from frameledger_services.client.http import appends, events, requests
from frameledger_services.client.http import client as http_client

CONTEXT = {
    "context_id": "a",
    "version": 3,
    "parked_version": None,
    "positions": [],
    "mirror": None,
    "messages": [],
    "answers": [],
    "tools": [],
    "tool_choice": None,
    "settings": {},
    "prompt_caching": None,
    "skip_tts": None,
}
TEXT = {"type": "LLMTextFrame", "text": "x"}


def answer(status, body, kind="application/json", *headers):
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = [f"HTTP/1.1 {status} X", f"Content-Type: {kind}", f"Content-Length: {len(content)}", *headers]
    return "\r\n".join([*head, "Connection: close", "", ""]).encode() + content


def problem(status, word, *headers, **members):
    body = {"type": f"/problems/{word}", "detail": f"It is {word}.", **members}
    return answer(status, body, "application/problem+json", *headers)


def stored(version, **also):
    about = {
        "version": version,
        "id": "0d1e2f30-0000-4000-8000-000000000001",
        "type": "LLMTextFrame",
        "outcome": "applied",
        "reason": None,
        "logged_at": "2026-03-04T09:00:00Z",
        "produced_at": None,
        "source": ',"frame":',
        "run_id": None,
        "tool_call_id": None,
        "place": {"partition": 0, "generation": 1, "offset": version},
        **also,
    }
    return json.dumps({**about, "frame": TEXT}, separators=(",", ":")).encode()


def event(version):
    return b"event: frame\nid: %d\ndata: %s\n\n" % (version, stored(version))


STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\nretry: 2000\n\n"


class Scripted:
    """What answers: of each connection the next of these answers, to one request. `None` says nothing for ever."""

    def __init__(self, answers):
        self.answers = list(answers)
        self.url = ""
        self.asked = []
        self.bodies = []
        self.times = []

    async def serve(self, reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = next(
            (int(line[15:]) for line in head.lower().split("\r\n") if line.startswith("content-length")), 0
        )
        self.bodies.append(await reader.readexactly(length))
        self.asked.append(head)
        self.times.append(asyncio.get_running_loop().time())
        said = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if said is None:
            await reader.read()
        elif said is not BROKEN:
            writer.write(said)
            await writer.drain()
            if b"dead" in said:
                await reader.read()
        writer.close()


BROKEN = b""


@pytest.mark.regression("journey 93")
@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes its certificate with openssl")
def test_a_certificate_that_nobody_vouches_for_is_told_as_that(tmp_path):
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    named = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    written = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*made, *named, *written], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    async def run():
        server = await asyncio.start_server(Scripted([BROKEN]).serve, "localhost", 0, ssl=context)
        url = f"https://localhost:{server.sockets[0].getsockname()[1]}"
        said = f"The certificate of {url} is not trusted: self.signed certificate."
        async with asyncio.timeout(IN_PROCESS), server, HttpClient(url, token="") as client:
            for asked in (client.newest_version("a"), anext(client.follow("a"))):
                with pytest.raises(GatewayAnswerError, match=said):
                    await asked
            with pytest.raises(FramesUnacknowledgedError, match=said) as caught:
                await client.publish("a", LLMRunFrame(id="mine"))
            assert [frame.id for frame in caught.value.frames] == ["mine"]

    asyncio.run(run())


@pytest.fixture
def use(monkeypatch):
    """Runs `work(client, gateway)` with a gateway that gives these answers, and a client that does not wait long."""
    monkeypatch.setattr(supervision, "SHORTEST_PAUSE", 0.001)
    monkeypatch.setattr(http_client, "SHORT_SECONDS", 0.0)

    def use(answers, work, token=None):
        async def run():
            scripted = Scripted(answers)
            server = await asyncio.start_server(scripted.serve, "127.0.0.1", 0)
            scripted.url = url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
            async with (
                asyncio.timeout(IN_PROCESS),
                server,
                HttpClient(url, settings=Settings(url=url, token=token)) as client,
            ):
                return await work(client, scripted), scripted

        return asyncio.run(run())

    return use


@pytest.mark.parametrize(
    ("said", "error", "words"),
    [
        (
            problem(401, "unauthorised"),
            NotPermittedError,
            "requires a valid token: It is unauthorised. Set FRAMELEDGER_TOKEN to a token of `frameledger token",
        ),
        (problem(403, "forbidden"), NotPermittedError, "It is forbidden"),
        (problem(404, "no-such-context"), NoSuchContextError, "no context 'a'"),
        (problem(410, "erased"), NoSuchContextError, "no context 'a'"),
        (problem(503, "wrong-schema"), SchemaError, "It is wrong-schema"),
        (problem(500, "internal-error"), GatewayAnswerError, "Its log says more"),
        (problem(400, "bad-parameter"), GatewayAnswerError, "It is bad-parameter"),
        (answer(200, {"hello": 1}), GatewayAnswerError, "of another release"),
        (answer(200, b"<html>", "text/html"), GatewayAnswerError, "of another release"),
        (answer(404, b"<html>", "text/html"), GatewayAnswerError, "is that the address of a gateway"),
        (answer(301, b"", "text/html", "Location: https://x/"), GatewayAnswerError, "leads to https://x/"),
    ],
)
def test_what_no_second_try_mends_is_an_error_at_once_that_says_what_to_do(use, said, error, words):
    async def work(client, _):
        with pytest.raises(error, match=words):
            await client.context("a")

    assert len(use([said], work)[1].asked) == 1


@pytest.mark.regression("fault 201")
@pytest.mark.parametrize(
    ("said", "error", "words"),
    [
        (STREAM + b": dead", RuntimeError, "This client is closed"),
        (answer(200, CONTEXT)[:-7] + b"dead", GatewayUnavailableError, "was closed before"),
    ],
)
def test_whoever_reads_when_the_client_is_closed_is_told(use, said, error, words):
    async def work(client, _):
        reading = client.context("a") if error is GatewayUnavailableError else anext(client.follow("a"))
        task = asyncio.ensure_future(reading)
        while not client._requests._responses:
            await look_again()
        await client.close()
        with pytest.raises(error, match=words):
            await task

    use([said], work)


@pytest.mark.regression("fault 200")
@pytest.mark.parametrize(
    "said",
    [
        problem(404, "no-such-version"),
        problem(404, "no-such-version", newest=None),
        problem(410, "erased", receipt={"version": 3}),
        problem(410, "erased", receipt="3"),
        problem(410, "erased", receipt={"version": 3, "why": "", "erased_at": "yesterday"}),
    ],
)
def test_a_problem_without_its_members_is_an_answer_that_cannot_be_read(use, said):
    async def work(client, _):
        with pytest.raises(GatewayAnswerError, match="of another release"):
            await client.context("a", 7)

    use([said], work)


@pytest.mark.regression("fault 200")
@pytest.mark.parametrize("listed", [3, [{}]])
def test_a_refused_append_has_its_frames_if_the_refusal_cannot_be_read(use, listed):
    async def work(client, _):
        with pytest.raises(FramesUnacknowledgedError) as caught:
            await client.publish("a", LLMTextFrame(text="x"))
        return caught.value.frames

    frames, _ = use([problem(503, "log-away", published=listed)], work)
    assert len(frames) == 1


@pytest.mark.parametrize(
    "away",
    [
        problem(503, "database-away"),
        problem(503, "draining"),
        problem(429, "too-many"),
        answer(502, b"nginx", "text/html"),
        BROKEN,
        answer(200, CONTEXT)[:-7],
    ],
)
def test_what_a_second_try_mends_is_asked_again(use, away, monkeypatch):
    monkeypatch.setattr(http_client, "READ_SECONDS", IN_PROCESS)

    async def work(client, _):
        return await client.context("a")

    found, scripted = use([away, away, answer(200, CONTEXT)], work)
    assert (found.version, len(scripted.asked)) == (3, 3)


@pytest.mark.regression("journey 63")
def test_an_answer_that_comes_is_read_however_long_it_takes(use, monkeypatch):
    monkeypatch.setattr(http_client, "READ_SECONDS", 0.0)

    async def work(client, _):
        return await client.context("a")

    found, scripted = use([answer(200, CONTEXT)], work)
    assert (found.version, len(scripted.asked)) == (3, 1)


@pytest.mark.regression("gateway 128")
def test_a_gateway_that_says_nothing_may_be_waiting_itself(use, monkeypatch):
    monkeypatch.setattr(http_client, "READ_SECONDS", 0.0)
    monkeypatch.setattr(requests, "ANSWER_SECONDS", 0.02)

    async def work(client, _):
        with pytest.raises(GatewayUnavailableError, match="It may be waiting for Kafka"):
            await client.context("a")

    use([None], work)


def test_who_is_told_to_wait_waits(use):
    async def work(client, _):
        return await client.context("a")

    busy = problem(429, "too-many", "Retry-After: 1")
    _, scripted = use([busy, answer(200, CONTEXT)], work)
    assert scripted.times[1] - scripted.times[0] >= 1


def test_a_gateway_that_stays_away_is_an_error_with_the_seconds_that_it_asks_for(use):
    async def work(client, _):
        with pytest.raises(GatewayUnavailableError, match="It is too-many") as busy:
            await client.context("a")
        assert busy.value.retry_after == 7
        with pytest.raises(GatewayUnavailableError):
            await anext(client.follow("a"))

    use([problem(429, "too-many", "Retry-After: 7")], work)


@pytest.mark.regression("gateway 117")
@pytest.mark.parametrize("tag", ['"7"', '"7.2"', 'W/"7"', 'W/"7.n9"'])
def test_the_newest_version_is_read_of_a_tag_that_a_proxy_made_weak_too(use, tag):
    async def work(client, _):
        return await client.newest_version("a")

    assert use([answer(200, b"", "application/json", f"ETag: {tag}")], work)[0] == 7


@pytest.mark.regression("gateway 114")
@pytest.mark.parametrize("secs", ["86400", "9" * 400])
def test_whoever_follows_or_reads_frames_is_not_sent_away_for_days(use, monkeypatch, secs):
    monkeypatch.setattr(http_client, "MAX_PAUSE_SECONDS", 0.01)

    async def follow(client, _):
        return await first(client, 2)

    async def read(client, _):
        async with aclosing(client.frames("a")) as frames:
            return [frame.version async for frame in frames]

    busy = problem(503, "draining", f"Retry-After: {secs}")
    assert use([STREAM + event(1), busy, STREAM + event(2)], follow)[0] == [1, 2]
    # The answer that broke off announced more than there is of it.
    broken = answer(200, stored(1) + b"\n", http_client.NDJSON).replace(
        b"Content-Length: ", b"Content-Length: 9"
    )
    lines = [answer(200, stored(2) + b"\n", http_client.NDJSON), answer(200, b"", http_client.NDJSON)]
    assert use([broken, busy, *lines], read)[0] == [1, 2]


def test_the_token_is_in_a_header_and_nowhere_else(use):
    async def work(client, _):
        await client.context("acme/1 \u00fc", 3)

    _, scripted = use([answer(200, CONTEXT)], work, token="fl_x_y\n")
    assert scripted.asked[0].startswith("GET /v1/contexts/acme%2F1%20%C3%BC?version=3 HTTP/1.1\r\n")
    assert "\r\nAuthorization: Bearer fl_x_y\r\n" in scripted.asked[0]


@pytest.mark.parametrize(
    ("context_id", "path"),
    [("a/../b", "a%2F%2E%2E%2Fb"), (".", "%2E"), ("100% ü?#", "100%25%20%C3%BC%3F%23")],
)
def test_an_id_is_one_segment_of_the_path_whatever_is_in_it(use, context_id, path):
    async def work(client, _):
        with suppress(NoSuchContextError):
            await client.context(context_id, 7)

    _, gateway = use([problem(404, "no-such-context")], work)
    assert gateway.asked[0].startswith(f"GET /v1/contexts/{path}?version=7 HTTP/1.1\r\n")


def test_an_answer_may_name_many_frames_in_its_headers(use):
    async def work(client, _):
        return await client.newest_version("a")

    newest, _ = use([answer(200, b"", "text/plain", 'ETag: "7"', f"Location: /{'x' * 30_000}")], work)
    assert newest == 7


def test_requests_go_through_the_proxy_of_the_environment(use, monkeypatch):
    async def work(_, proxy):
        monkeypatch.setenv("http_proxy", proxy.url)
        async with HttpClient("http://gateway.invalid", "") as client:
            return await client.newest_version("a")

    newest, proxy = use([answer(200, b"", "text/plain", 'ETag: "7.n300"')], work)
    assert newest == 7
    assert proxy.asked[0].startswith("HEAD http://gateway.invalid/v1/contexts/a HTTP/1.1\r\n")


@pytest.mark.regression("journey 105")
def test_a_gateway_of_this_machine_is_asked_without_a_proxy(use, monkeypatch):
    async def work(client, _):
        monkeypatch.setenv("http_proxy", "http://proxy.invalid")
        return await client.newest_version("a")

    newest, _ = use([answer(200, b"", "text/plain", 'ETag: "7"')], work)
    assert newest == 7


@pytest.mark.regression("journey 105")
def test_a_proxy_that_does_not_answer_is_told_as_one(monkeypatch):
    async def work():
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
        async with HttpClient("http://gateway.invalid", "") as client:
            await client.newest_version("a")

    monkeypatch.setattr(http_client, "READ_SECONDS", 0.0)
    with pytest.raises(GatewayUnavailableError, match="does not answer through the proxy of the environment"):
        asyncio.run(work())


def test_a_proxy_that_does_not_speak_http_is_an_error_at_once(monkeypatch):
    async def work():
        async with HttpClient("http://gateway.invalid", "") as client:
            await client.newest_version("a")

    for name in ("http_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("all_proxy", "socks5://proxy.invalid")
    monkeypatch.setenv("no_proxy", "")
    with pytest.raises(SettingsError, match=r"another kind than http, socks5://proxy.invalid"):
        asyncio.run(work())


@pytest.mark.parametrize("exempt", ["0.0.0.0", "0.0.0.0:{port}"])
def test_a_gateway_that_the_environment_exempts_is_asked_without_the_proxy(use, monkeypatch, exempt):
    async def work(_, gateway):
        # An address of this machine that is not its loopback address, for which there is never a proxy.
        port = urlsplit(gateway.url).port
        monkeypatch.setenv("http_proxy", "http://proxy.invalid")
        monkeypatch.setenv("no_proxy", exempt.format(port=port))
        async with HttpClient(f"http://0.0.0.0:{port}", "") as client:
            return await client.newest_version("a")

    newest, _ = use([answer(200, b"", "text/plain", 'ETag: "7"')], work)
    assert newest == 7


def test_frames_of_an_answer_that_is_lost_are_sent_again_with_their_ids(use):
    place = {"id": "one", "place": "llm.frames:1:0:7"}

    async def work(client, _):
        return await client.publish("a", LLMTextFrame(text="a", id="one"))

    (published,), scripted = use([BROKEN, problem(503, "log-away"), answer(202, {"frames": [place]})], work)
    assert (published.topic, published.generation, published.partition, published.offset) == (
        "llm.frames",
        1,
        0,
        7,
    )
    assert len(scripted.bodies) == 3
    assert len(set(scripted.bodies)) == 1


def test_of_frames_of_which_some_are_on_the_log_the_others_are_in_the_error(use):
    frames = [LLMTextFrame(text=one, id=one) for one in "abc"]

    async def unacknowledged(client, _):
        with pytest.raises(FramesUnacknowledgedError, match="It is log-away") as left:
            await client.publish("a", *frames, within=scaled(1.0))
        return [one.id for one in left.value.frames]

    some = problem(503, "log-away", published=["a"], unpublished=["b", "c"])
    assert use([some, problem(503, "log-away", published=["b"])], unacknowledged)[0] == ["c"]

    async def refused(client, _):
        with pytest.raises(FramesRefusedError, match="It is too-large") as left:
            await client.publish("a", *frames)
        return [one.id for one in left.value.frames]

    assert use([problem(413, "too-large", published=["a", "c"], unpublished=["b"])], refused)[0] == ["b"]
    assert use([problem(400, "bad-frame")], lambda *of: refused_as(*of, frames=frames, word="bad-frame"))[
        0
    ] == list("abc")
    # What stands before a gateway may refuse it too.
    large = answer(413, b"large", "text/html")
    assert use([large], lambda *of: refused_as(*of, frames=frames, word="answered 413"))[0] == list("abc")


A_PAGE = answer(200, b"<!doctype html>\n<title>Sign in</title>\n", "text/html; charset=utf-8")
"""What servers of pages answer to any path, and proxies that want somebody to sign in."""

WRONG = [
    A_PAGE,
    problem(500, "internal-error"),
    answer(404, b"<html>", "text/html"),
    answer(403, b"<html>", "text/html"),
    problem(404, "not-found"),
    answer(301, b"", "text/html", "Location: https://x/"),
]


@pytest.mark.parametrize("wrong", WRONG)
def test_an_answer_that_is_not_about_the_frames_leaves_them_to_be_published_again(use, wrong):
    async def work(client, _):
        with pytest.raises(FramesUnacknowledgedError) as left:
            await client.publish("a", LLMTextFrame(text="a", id="one"))
        return [one.id for one in left.value.frames]

    assert use([wrong], work)[0] == ["one"]


def test_a_recording_loses_no_frame_to_answers_of_something_before_the_gateway(use, monkeypatch):
    monkeypatch.setattr(delivery, "PAUSE_SECONDS", 0)
    ids = [f"{number}" for number in range(5)]
    places = {"frames": [{"id": one, "place": "llm.frames:1:0:7"} for one in ids]}

    async def work(client, _):
        publishing = Publishing("a", client)
        publishing.put({**TEXT, "id": one} for one in ids)
        return await publishing.flush(IN_PROCESS), publishing.lost

    (is_all, lost), scripted = use([*WRONG, answer(202, places)], work)
    assert (is_all, lost) == (True, 0)
    assert len(scripted.bodies) == len(WRONG) + 1


@pytest.mark.regression("gateway 90")
@pytest.mark.parametrize(
    "read",
    [
        lambda client: anext(client.follow("a")),
        lambda client: anext(client.frames("a")),
        lambda client: client.context("a"),
        lambda client: client.goes_on("a"),
        lambda client: client.waiting_for_client("a"),
        lambda client: client.tools_on_offer(),
        lambda client: client.live_inference_workers(),
    ],
)
@pytest.mark.parametrize("said", [A_PAGE, answer(200, b"", "text/html"), answer(200, [1])])
def test_an_answer_that_is_no_gateways_is_an_error_that_says_so(use, read, said):
    async def work(client, _):
        with pytest.raises(GatewayAnswerError, match=r"is that the address of a gateway|of another release"):
            await read(client)

    assert len(use([said], work)[1].asked) == 1


@pytest.mark.regression("gateway 90")
@pytest.mark.parametrize("said", [A_PAGE, answer(202, b"accepted", "text/plain")])
def test_frames_that_are_published_are_in_the_error_if_their_outcomes_cannot_be_read(use, said):
    places = {"frames": [{"id": "one", "place": "llm.frames:1:0:7"}]}

    async def work(client, _):
        with pytest.raises(NotVisibleError) as left:
            await client.publish("a", LLMTextFrame(text="a", id="one"), wait=True)
        return [one.id for one in left.value.frames]

    assert use([answer(202, places), said], work)[0] == ["one"]


async def refused_as(client, _, *, frames, word):
    with pytest.raises(FramesRefusedError, match=word) as left:
        await client.publish("a", *frames)
    return [one.id for one in left.value.frames]


def test_a_token_that_may_not_publish_there_is_an_error_before_anything_is_published(use):
    async def work(client, _):
        with pytest.raises(NotPermittedError, match="may not publish to 'a'"):
            await client.publish("a", LLMRunFrame())

    use([problem(404, "no-such-context")], work)


def test_one_request_has_as_many_frames_and_bytes_as_a_gateway_takes():
    class Sized:
        def __init__(self, size):
            self.value = b"x" * size

    def sizes(*given):
        records: list[Any] = [Sized(size) for size in given]
        return [[len(one.value) for one in chunk] for chunk in appends._chunks(records)]

    assert sizes() == []
    assert [len(one) for one in sizes(*[1] * 1_001)] == [500, 500, 1]
    half = MAX_VALUE_BYTES // 2
    assert sizes(MAX_VALUE_BYTES) == [[MAX_VALUE_BYTES]]
    # Brackets and a comma.
    assert sizes(half, half - 3) == [[half, half - 3]]
    assert sizes(half, half - 2) == [[half], [half - 2]]


async def first(client, count, after=0):
    async with aclosing(client.follow("a", after)) as frames:
        return [(await anext(frames)).version for _ in range(count)]


def test_a_stream_that_breaks_goes_on_behind_the_last_frame(use):
    whole = STREAM + event(1) + event(2)
    cut = STREAM + event(3) + event(4)[:-20]

    found, scripted = use(
        [whole, BROKEN, problem(503, "draining"), cut, STREAM + event(4)], lambda c, _: first(c, 4)
    )
    assert found == [1, 2, 3, 4]
    asked = [head.split(" ")[1].partition("?")[2] for head in scripted.asked]
    assert asked == [f"after={version}&wait=1" for version in (0, 2, 2, 2, 3)]


def test_a_proxy_that_says_nothing_is_left(use, monkeypatch):
    """For `https` it is asked for a tunnel before anything is sent to the gateway."""
    monkeypatch.setattr(requests, "CONNECT_SECONDS", 0.05)

    async def work(_, proxy):
        monkeypatch.setenv("https_proxy", proxy.url)
        async with HttpClient("https://gateway.invalid", "") as client:
            with pytest.raises(GatewayUnavailableError):
                await anext(client.follow("a"))

    use([None], work)


@pytest.mark.parametrize(
    ("address", "url"),
    [
        ("http://b\u00fccher.example/\u00fc b/", "http://xn--bcher-kva.example/%C3%BC%20b"),
        ("https://frameledger.example:8443", "https://frameledger.example:8443"),
        ("http://[::1]:81/", "http://[::1]:81"),
    ],
)
def test_an_address_is_written_as_requests_need_it(address, url):
    assert requests.Requests(address, None).address("a", "/frames") == f"{url}/v1/contexts/a/frames"


@pytest.mark.regression("journey 44")
@pytest.mark.parametrize(
    "address", ["http://a:99999", "http://a..b", "http://[::1", "http://", "https:///v1"]
)
def test_what_cannot_be_an_address_is_an_error_that_names_it(address):
    with pytest.raises(SettingsError, match=re.escape(repr(address))):
        HttpClient(address, "")


def test_a_stream_that_falls_silent_is_left_and_resumed(use, monkeypatch):
    monkeypatch.setattr(requests, "SILENT_SECONDS", scaled(0.5))
    silent = STREAM + event(1) + b": dead\n\n"
    found, scripted = use([silent, STREAM + event(2)], lambda c, _: first(c, 2))
    assert found == [1, 2]
    assert len(scripted.asked) == 2


def test_after_a_reset_no_frame_comes_twice_and_what_is_no_frame_is_passed_over(use):
    stream = b"".join(
        [
            STREAM,
            b'event: reset\nid: 0\ndata: {"newest":2}\n\n: heartbeat\n\n',
            event(1),
            event(2),
            b'event: gone\nid: 2\ndata: {"version":2}\n\nevent: head\ndata: {}\n\nevent: tomorrow\ndata: 1\n\n',
            event(3),
            event(4),
        ]
    )
    assert use([stream], lambda c, _: first(c, 2, after=2))[0] == [3, 4]


def test_a_stream_that_a_token_may_no_longer_read_ends_with_that(use):
    async def work(client, _):
        frames = client.follow("a")
        assert (await anext(frames)).version == 1
        with pytest.raises(NotPermittedError):
            await anext(frames)

    use([STREAM + event(1), problem(401, "unauthorised")], work)


def test_frames_of_an_answer_that_broke_off_or_ended_early_are_asked_for_until_there_are_no_more(use):
    async def work(client, _):
        return [frame async for frame in client.frames("a")]

    broken = answer(200, stored(2) + b"\n" + stored(3)[:50], "application/x-ndjson").replace(b"h: ", b"h: 1")
    lines = [answer(200, stored(1) + b"\n", "application/x-ndjson"), broken]
    found, scripted = use(
        [
            *lines,
            answer(200, stored(3, raw="a\r\nb") + b"\n", "application/x-ndjson"),
            answer(200, b"", "application/x-ndjson"),
        ],
        work,
    )
    assert [frame.version for frame in found] == [1, 2, 3]
    assert found[0].payload == json.dumps(TEXT, separators=(",", ":")).encode()
    assert found[0].source == ',"frame":'
    assert found[2].payload == b"a\r\nb"
    assert [head.split(" ")[1].rpartition("=")[2] for head in scripted.asked] == ["0", "1", "2", "3"]


@pytest.mark.parametrize("url", [None, "", "127.0.0.1:18080", "ftp://x"])
def test_without_an_address_there_is_no_client(url, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FRAMELEDGER_URL", raising=False)
    with pytest.raises(SettingsError, match="address of a gateway"):
        HttpClient(url)


@pytest.mark.regression("fault 81")
@pytest.mark.parametrize(
    "said",
    [
        problem(401, "unauthorised"),
        problem(403, "forbidden"),
        problem(429, "too-many"),
        problem(503, "wrong-schema"),
        answer(200, b"", "text/html"),
        BROKEN,
    ],
)
def test_no_error_has_the_password_of_the_address(use, said):
    async def work(_, gateway):
        errors = (GatewayUnavailableError, GatewayAnswerError, NotPermittedError, SchemaError)
        async with HttpClient(gateway.url.replace("://", "://me:hush@"), "") as client:
            with pytest.raises(errors) as caught:
                await client.newest_version("a")
        assert "hush" not in str(caught.value)

    _, gateway = use([said], work)
    assert "authorization: basic" in gateway.asked[0].lower()


@pytest.mark.regression("fault 81")
@pytest.mark.parametrize("url", ["ftp://me:hush@gateway.example", "https://me:hush@:1"])
def test_an_address_that_is_none_is_named_without_its_password(url):
    with pytest.raises(SettingsError, match="is not the address of a gateway") as caught:
        HttpClient(url, "")
    assert "hush" not in str(caught.value)


def test_address_and_token_are_those_of_the_environment(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FRAMELEDGER_URL", "https://frameledger.example/prefix/")
    (tmp_path / "token").write_text("fl_a_b\n")
    monkeypatch.setenv("FRAMELEDGER_TOKEN_FILE", str(tmp_path / "token"))
    made = HttpClient()
    assert made._requests.address("a..b", "/frames") == (
        "https://frameledger.example/prefix/v1/contexts/a%2E%2Eb/frames"
    )
    assert made._requests._headers["Authorization"] == "Bearer fl_a_b"
    asyncio.run(made.close())


@pytest.mark.regression("fault 185")
@pytest.mark.parametrize("said", [None, BROKEN], ids=["silent", "broken"])
def test_whoever_publishes_while_the_client_is_closed_is_told_with_the_frames(use, said):
    async def work(client, gateway):
        publishing = asyncio.create_task(client.publish("a", LLMRunFrame(id="mine"), within=IN_PROCESS))
        reading = asyncio.create_task(client.context("a"))
        while len(gateway.asked) < 2:
            await look_again()
        await client.close()
        with pytest.raises(FramesUnacknowledgedError, match="The client was closed before") as caught:
            await publishing
        assert [frame.id for frame in caught.value.frames] == ["mine"]
        with pytest.raises(GatewayUnavailableError, match="The client was closed before"):
            await reading
        with pytest.raises(RuntimeError, match="This client is closed"):
            await client.publish("a", LLMRunFrame())

    use([said], work)


@pytest.mark.regression("fault 331")
def test_whoever_reads_for_longer_than_it_is_tried_is_told_that_the_client_was_closed(use, monkeypatch):
    monkeypatch.setattr(http_client, "READ_SECONDS", 0.0)

    async def work(client, gateway):
        reading = asyncio.create_task(client.context("a"))
        while not gateway.asked:
            await look_again()
        await client.close()
        with pytest.raises(GatewayUnavailableError, match="The client was closed before"):
            await reading

    use([None], work)


def lines_of(*pieces):
    async def arriving():
        for piece in pieces:
            yield piece

    async def read():
        return [line async for line in events.lines_of(arriving())]

    return asyncio.run(read())


def test_lines_are_whole_however_they_arrive():
    text = b"one\n\ntwo\r\nthree\n"
    for size in range(1, len(text) + 1):
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        assert lines_of(*pieces) == [b"one", b"", b"two\r", b"three"]
    assert lines_of(b"one\nand no end") == [b"one"]


@pytest.mark.regression("fault 182")
def test_a_long_line_in_small_pieces_takes_time_in_proportion_to_its_length():
    piece, count = b"x" * 1_448, 1_000

    def read(count):
        assert len(lines_of(*[piece] * count, b"\n")[0]) == count * len(piece)

    assert_proportional(lambda number: lambda: read(number), count)
