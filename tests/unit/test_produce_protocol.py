"""Produce requests, their responses and the headers of both, compared with aiokafka's own encoding and decoding."""

import asyncio
import struct
from io import BytesIO

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.protocol.api import RequestHeader_v1
from aiokafka.protocol.fetch import FetchRequest_v11
from aiokafka.protocol.produce import ProduceRequest, ProduceRequest_v7, ProduceResponse_v7

from frameledger_services.event_log.fetch_protocol import QuickFetchRequest
from frameledger_services.event_log.produce_protocol import (
    QuickProduce,
    QuickProduceRequest,
    QuickProduceResponse,
    encode_quickly,
)

ANSWERS = [
    ([], 0),
    ([("frames", [(3, 0, 12_345, -1, 0)])], 0),
    ([("frames", [(number, 6, -1, 10**12, number) for number in range(64)]), ("größe", [])], 70),
]

REQUESTS = [
    (None, -1, 10_000, [("frames", [(3, b"records")])]),
    ("transaction", 1, 500, [("frames", [(number, b"x" * number) for number in range(64)]), ("größe", [])]),
    (None, 0, 500, []),
]


@pytest.mark.parametrize("answer", ANSWERS)
def test_a_response_is_decoded_as_aiokafka_decodes_it(answer):
    encoded = ProduceResponse_v7(*answer).encode()

    decoded = QuickProduceResponse.decode(BytesIO(encoded))

    assert decoded == ProduceResponse_v7.decode(encoded) == QuickProduceResponse.decode(encoded)
    assert decoded == ProduceResponse_v7(*answer)


def test_a_response_that_was_cut_off_is_an_error():
    encoded = ProduceResponse_v7(*ANSWERS[2]).encode()

    for end in range(len(encoded)):
        with pytest.raises((ValueError, struct.error)):
            QuickProduceResponse.decode(encoded[:end])


@pytest.mark.parametrize("request_", REQUESTS)
def test_a_request_is_encoded_as_aiokafka_encodes_it(request_):
    assert QuickProduceRequest(*request_).encode() == ProduceRequest_v7(*request_).encode()


@pytest.mark.parametrize("version", [3, 6, 7])
def test_the_version_that_a_broker_knows_is_sent_and_only_the_newest_is_quick(version):
    quick, plain = (
        kind(*(None, -1, 500, [("frames", [(0, b"records")])])).prepare({0: (3, version)})
        for kind in (QuickProduce, ProduceRequest)
    )

    assert isinstance(quick, QuickProduceRequest) == (version == 7)
    assert (quick.API_VERSION, quick.encode()) == (version, plain.encode())
    assert issubclass(quick.RESPONSE_TYPE, plain.RESPONSE_TYPE)


@pytest.mark.parametrize(
    ("quick", "plain"), [(QuickProduceRequest, ProduceRequest_v7), (QuickFetchRequest, FetchRequest_v11)]
)
def test_headers_are_those_of_aiokafka(quick, plain):
    quick, plain = quick(), plain()

    header, expected = (
        one.build_request_header(correlation_id=2**31 - 1, client_id="größe") for one in (quick, plain)
    )
    data, same_data = BytesIO(b"\0\0\1\2rest"), BytesIO(b"\0\0\1\2rest")
    answer, expected_answer = quick.parse_response_header(data), plain.parse_response_header(same_data)

    assert isinstance(expected, RequestHeader_v1)
    assert header.encode() == expected.encode()
    assert answer.correlation_id == expected_answer.correlation_id == 258
    assert data.read() == same_data.read() == b"rest"


def test_only_the_producer_that_was_changed_encodes_quickly():
    sent = []

    class Client:
        async def send(self, node, request):
            sent.append(type(request))
            return ProduceResponse_v7([], 0)

    async def scenario():
        ours, other = AIOKafkaProducer(), AIOKafkaProducer()
        encode_quickly(ours)
        for producer in (ours, other):
            producer._sender.client = Client()
            producer._sender._in_flight.add(0)
            await producer._sender._send_produce_req(0, {})
            producer._closed = True

    asyncio.run(scenario())

    assert sent == [QuickProduce, ProduceRequest]
