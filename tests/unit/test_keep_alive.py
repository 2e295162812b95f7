"""The bytes of an answer: closed in the middle, nothing of it is left to the garbage collector."""

import asyncio

import httpx2
import pytest

from frameledger_services.providers import keep_alive


class Body(httpx2.AsyncByteStream):
    def __init__(self, *parts: bytes) -> None:
        self._parts = parts
        self.log: list[str] = []

    async def __aiter__(self):
        try:
            for part in self._parts:
                self.log.append("read")
                yield part
        finally:
            self.log.append("generator ended")

    async def aclose(self) -> None:
        self.log.append("closed")


def closed_after_one_part(*parts: bytes) -> list[str]:
    async def scenario() -> list[str]:
        body = Body(*parts)
        response = httpx2.Response(200, stream=body)
        await keep_alive.reading_to_the_end(httpx2)(response)
        await anext(aiter(response.stream))
        await response.aclose()
        return body.log

    return asyncio.run(scenario())


@pytest.mark.regression("worker 182")
def test_an_answer_that_is_closed_in_the_middle_ends_its_generator_at_once():
    assert closed_after_one_part(b"data: 1\n\n", b"data: 2\n\n") == ["read", "generator ended", "closed"]


def test_an_answer_that_is_closed_after_its_last_event_is_read_to_its_end():
    assert closed_after_one_part(b"data: [DONE]\n\n", b"\n") == ["read", "read", "generator ended", "closed"]
