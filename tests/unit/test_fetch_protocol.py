"""Fetch requests and responses, compared with aiokafka's own encoding and decoding."""

import struct
from io import BytesIO

import pytest
from aiokafka.protocol.fetch import FetchRequest, FetchRequest_v11, FetchResponse_v11

from frameledger_services.event_log.fetch_protocol import QuickFetch, QuickFetchRequest, QuickFetchResponse

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


@pytest.mark.parametrize("answer", ANSWERS)
def test_a_response_is_decoded_as_aiokafka_decodes_it(answer):
    encoded = FetchResponse_v11(*answer).encode()

    decoded = QuickFetchResponse.decode(BytesIO(encoded))

    assert decoded == FetchResponse_v11.decode(encoded) == QuickFetchResponse.decode(encoded)
    assert decoded == FetchResponse_v11(*answer)


def test_only_what_is_left_of_the_data_is_decoded():
    data = BytesIO(b"head" + FetchResponse_v11(*ANSWERS[2]).encode())
    data.seek(4)

    assert QuickFetchResponse.decode(data) == FetchResponse_v11(*ANSWERS[2])


def test_a_response_that_was_cut_off_is_an_error():
    encoded = FetchResponse_v11(*ANSWERS[2]).encode()

    for end in (*range(200), len(encoded) - 1):
        with pytest.raises((ValueError, struct.error)):
            QuickFetchResponse.decode(encoded[:end])


@pytest.mark.parametrize("request_", REQUESTS)
def test_a_request_is_encoded_as_aiokafka_encodes_it(request_):
    assert QuickFetchRequest(*request_).encode() == FetchRequest_v11(*request_).encode()


@pytest.mark.parametrize("version", [4, 10, 11])
def test_the_version_that_a_broker_knows_is_sent_and_only_the_newest_is_quick(version):
    topics = [("frames", [(0, 5, 1 << 20), (1, 6, 1 << 20)])]
    quick, plain = (
        kind(500, 1, 1 << 25, 1, topics).prepare({1: (4, version)}) for kind in (QuickFetch, FetchRequest)
    )
    assert isinstance(quick, QuickFetchRequest) == (version == 11)
    assert (quick.API_VERSION, quick.encode()) == (version, plain.encode())
    assert issubclass(quick.RESPONSE_TYPE, plain.RESPONSE_TYPE)
