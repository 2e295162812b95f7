"""Bodies of requests: those that come slowly, their frames as they were sent, and parameters that are none."""

import asyncio
import gzip
import threading
import tracemalloc

import pytest
from starlette.requests import Request
from tests.bounds import IN_PROCESS
from tests.support.gateway import AWAY, app_of

from frameledger.record import MAX_VALUE_BYTES, decode
from frameledger_services.client import spelling
from frameledger_services.gateway import body, parameters
from frameledger_services.gateway.problems import ProblemError
from frameledger_services.settings import Settings

PIECE = b"x" * 1_000


def received(pieces, *, is_last=False):
    """What is received of these pieces, behind which nothing comes unless one is the last."""
    left = list(pieces)

    async def receive():
        if not left:
            await asyncio.Event().wait()
        piece = left.pop(0)
        return {"type": "http.request", "body": piece, "more_body": bool(left) or not is_last}

    async def main():
        async with asyncio.timeout(IN_PROCESS):
            return await body.received(Request({"type": "http"}, receive), 5_000, "That is too much.")

    return asyncio.run(main())


@pytest.mark.regression("gateway 30")
@pytest.mark.parametrize("pieces", [[], [PIECE], [PIECE] * 3])
def test_a_body_that_stops_is_not_waited_for(monkeypatch, pieces):
    monkeypatch.setattr(body, "MAX_SECONDS", 0.0)
    monkeypatch.setattr(body, "MIN_RATE", 1_000_000)
    with pytest.raises(ProblemError, match=f"Only {1_000 * len(pieces)} bytes") as refused:
        received(pieces)
    assert (refused.value.word, refused.value.headers) == ("too-slow", {"Connection": "close"})


def test_a_body_is_received_up_to_its_limit():
    assert received([PIECE] * 5, is_last=True) == PIECE * 5
    with pytest.raises(ProblemError, match="That is too much") as refused:
        received([PIECE] * 6)
    assert refused.value.word == "too-large"


def test_a_client_that_leaves_within_a_body_has_sent_none():
    async def receive():
        return {"type": "http.disconnect"}

    with pytest.raises(ProblemError, match="ended early"):
        asyncio.run(body.received(Request({"type": "http"}, receive), 5, ""))


@pytest.mark.regression("gateway 101")
@pytest.mark.parametrize("codings", [[b"gzip"], [b"Identity, br"], [b"identity", b"zstd"]])
def test_a_compressed_body_is_refused_for_that_and_not_for_its_bytes(codings):
    with pytest.raises(ProblemError, match="Content-Encoding") as refused:
        frames_in(
            gzip.compress(HALVES[0]), b"application/json", *((b"content-encoding", one) for one in codings)
        )
    assert refused.value.word == "unsupported-media-type"
    assert refused.value.headers == {"Accept-Encoding": "identity"}
    assert frames_in(HALVES[0], b"application/json", (b"content-encoding", b"identity"))[0][0] == HALVES[0]


HALVES = [rb'{"type": "LLMTextFrame", "text": "\ud83d"}', rb'{"type":"LLMTextFrame","text":"\ude42"}']
"""Half a character each: no decoder of arrays that we use takes it, and a model may send it."""


def frames_in(content, kind=b"application/json", *headers):
    async def receive():
        return {"type": "http.request", "body": content, "more_body": False}

    head = {"type": "http", "headers": [(b"content-type", kind), *headers]}
    return asyncio.run(body.read(Request(head, receive)))


@pytest.mark.parametrize(
    "array", [b"[%s,%s]", b" [ %s , %s ] \n", b"[%s\t,\r\n%s]"], ids=["dense", "spaced", "on lines"]
)
def test_frames_of_an_array_are_cut_out_byte_for_byte_whatever_is_in_them(array):
    assert [value for value, _ in frames_in(array % tuple(HALVES))] == HALVES


@pytest.mark.parametrize("array", [b"[%s,%s", b"[%s,%s]]", b"[%s;%s]", b"[%s,%s] {}", b"[%s,%s,]"])
def test_what_is_no_array_is_refused_as_a_whole(array):
    with pytest.raises(ProblemError) as refused:
        frames_in(array % tuple(HALVES))
    assert (refused.value.word, refused.value.members["code"]) == ("bad-frame", "not_json")
    assert refused.value.members["frame"] == 1


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b" \n\t\r\n\n", []),
        (b"one", [b"one"]),
        (b"one\n", [b"one"]),
        (b"\n \n  one \r\n\n\ntwo", [b"  one \r", b"two"]),
    ],
)
def test_lines_are_taken_as_they_are_without_the_blank_ones(content, lines):
    assert body._lines(content) == lines


FRAME = b'{"type":"LLMTextFrame","text":"Yes"}'


@pytest.mark.parametrize(
    ("kind", "begin", "separator", "end"),
    [(b"application/json", b"[", b",", b"]"), (b"application/x-ndjson", b"", b"\n", b"\n")],
    ids=["an array", "lines"],
)
def test_no_more_frames_are_taken_than_are_allowed(kind, begin, separator, end):
    def sent(count):
        return frames_in(begin + separator.join([FRAME] * count) + end, kind)

    assert [value for value, _ in sent(body.MAX_FRAMES)] == [FRAME] * body.MAX_FRAMES
    with pytest.raises(ProblemError, match="more than 500 frames") as refused:
        sent(body.MAX_FRAMES + 1)
    assert refused.value.word == "too-large"


MANY = 500_000


@pytest.mark.regression("fault 65")
@pytest.mark.parametrize(
    ("kind", "content"),
    [
        (b"application/json", b"[%s0]" % (b"0," * MANY)),
        (b"application/json", rb'["\ud83d",%s0]' % (b"0," * MANY)),
        (b"application/x-ndjson", b"0\n" * MANY),
        (b"application/x-ndjson", b"\n" * 2 * MANY),
    ],
    ids=["an array", "an array with half a character", "lines", "blank lines"],
)
def test_a_body_with_far_too_many_frames_takes_no_memory_for_each_of_them(kind, content):
    tracemalloc.start()
    try:
        with pytest.raises(ProblemError):
            frames_in(content, kind)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3 * len(content)


@pytest.mark.regression("gateway 82")
@pytest.mark.parametrize(
    ("content", "is_long"), [(FRAME, False), (FRAME + b" " * body.SHORT_BYTES, True)], ids=["short", "long"]
)
def test_a_long_body_is_read_outside_of_the_event_loop(monkeypatch, content, is_long):
    threads = []

    def decode_noted(value):
        threads.append(threading.current_thread())
        return decode(value)

    monkeypatch.setattr(body, "decode", decode_noted)
    assert [value for value, _ in frames_in(content)] == [content]
    assert [one is not threading.main_thread() for one in threads] == [is_long]


@pytest.mark.regression("gateway 82")
def test_the_gateway_does_not_guess_what_is_meant_by_what_it_publishes(monkeypatch):
    monkeypatch.setattr(spelling, "is_one_edit", None)

    async def append():
        async with app_of(Settings(**AWAY)) as http:
            return await http.post("/v1/contexts/c/frames", json={"type": "LLMRunFrame", "idd": "1"})

    # There is no log, for which it is stored.
    assert asyncio.run(append()).json()["type"] == "/problems/log-away"


@pytest.mark.regression("gateway 87")
@pytest.mark.parametrize(
    ("headers", "number"),
    [({}, 2), ({"Idempotency-Key": "k"}, 2), ({"If-Match": '"3"'}, 1)],
    ids=["plain", "with a key", "with a version"],
)
def test_a_frame_that_is_too_large_once_it_is_written_anew_is_told_to_be_too_large(headers, number):
    """A number such as 1e9 takes four times the room when it is written as Python writes it."""
    count = MAX_VALUE_BYTES // len("1000000000.0,") + 1
    large = b'{"type":"LLMRunFrame","metadata":{"numbers":[%s]}}' % b",".join([b"1e9"] * count)

    async def append():
        async with app_of(Settings(**AWAY)) as http:
            content = b"[" + b",".join([FRAME] * (number - 1) + [large]) + b"]"
            headers_ = {"Content-Type": "application/json", **headers}
            return await http.post("/v1/contexts/c/frames", content=content, headers=headers_)

    answer = asyncio.run(append())
    said = answer.json()
    assert answer.status_code == 413
    assert (said["type"], said["code"], said["frame"]) == ("/problems/too-large", "too_large", number)


@pytest.mark.regression("gateway 26")
def test_a_parameter_that_is_none_is_named():
    asked = Request({"type": "http", "query_string": b"starting_after=-4", "headers": []})
    with pytest.raises(ProblemError, match="not '-4'") as refused:
        parameters.integer("starting_after", "").of(asked)
    assert refused.value.members == {"param": "starting_after"}
