"""Fetches and their answers, beside aiokafka's own way to write and to read them."""

import struct
from io import BytesIO

import pytest
from aiokafka.protocol.fetch import FetchRequest_v11, FetchResponse_v11
from aiokafka.protocol.struct import Struct

from frameledger_services.event_log import fetch_protocol

ANSWERS = [
    (0, 0, 0, []),
    (3, 70, 17, [("frames", [])]),
    (
        0,
        0,
        0,
        [
            ("frames", [(0, 0, 10, 9, 1, None, -1, b"records"), (1, 1, -1, -1, -1, [], 2, None)]),
            ("größe", [(number, 0, 5, 5, 0, [(7, 3), (8, 4)], -1, b"") for number in range(64)]),
        ],
    ),
]

REQUESTS = [
    (-1, 500, 1, 1 << 25, 1, 0, -1, [], [], ""),
    (
        -1,
        500,
        1,
        1 << 25,
        1,
        9,
        4,
        [("frames", [(number, -1, number * 10**12, -1, 1 << 20) for number in range(64)]), ("größe", [])],
        [("other", [1, 2])],
        "rack",
    ),
]


@pytest.fixture(autouse=True)
def installed(monkeypatch):
    # Put back at the end, whatever was installed before.
    monkeypatch.setattr(FetchResponse_v11, "decode", FetchResponse_v11.decode)
    monkeypatch.setattr(FetchRequest_v11, "encode", FetchRequest_v11.encode)
    fetch_protocol.install()


@pytest.mark.parametrize("answer", ANSWERS)
def test_an_answer_is_read_as_aiokafka_reads_it(answer):
    written = FetchResponse_v11(*answer).encode()

    read = FetchResponse_v11.decode(BytesIO(written))

    assert read == Struct.decode.__func__(FetchResponse_v11, written) == FetchResponse_v11.decode(written)
    assert read == FetchResponse_v11(*answer)


def test_only_what_is_left_of_the_data_is_read():
    data = BytesIO(b"head" + FetchResponse_v11(*ANSWERS[2]).encode())
    data.seek(4)

    assert FetchResponse_v11.decode(data) == FetchResponse_v11(*ANSWERS[2])


def test_an_answer_that_was_cut_off_is_none():
    written = FetchResponse_v11(*ANSWERS[2]).encode()

    for end in (*range(200), len(written) - 1):
        with pytest.raises((ValueError, struct.error)):
            FetchResponse_v11.decode(written[:end])


@pytest.mark.parametrize("request_", REQUESTS)
def test_a_request_is_written_as_aiokafka_writes_it(request_):
    request = FetchRequest_v11(*request_)

    assert request.encode() == Struct.encode(request)
