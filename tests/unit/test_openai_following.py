"""Following an answer while the database is unreachable at times."""

import asyncio
from contextlib import suppress
from types import SimpleNamespace

import pytest
from tests.bounds import IN_PROCESS

from frameledger_services.gateway.live.follower import Chunk
from frameledger_services.gateway.openai.asked import Asked
from frameledger_services.gateway.openai.following import Following
from frameledger_services.gateway.parts import Parts
from frameledger_services.settings import Settings
from frameledger_services.store import client_calls, conversation_state
from frameledger_services.store.client_calls import ClientCall
from frameledger_services.store.connections import DatabaseUnavailableError
from frameledger_services.store.following import StreamHead

CALL = ClientCall("c", "paint", "{}", 3, True, False, None, None)
CALLING = Chunk(
    b"",
    5,
    is_all=True,
    exists=True,
    erased_version=None,
    ended=False,
    head=StreamHead(5, "calling", False, None),
)


class Database:
    """Is away once, and then has a conversation in which its client's call waits."""

    def __init__(self):
        self.is_away = True

    async def read(self, function, *_):
        if self.is_away:
            self.is_away = False
            raise DatabaseUnavailableError("no connection was free")
        return {conversation_state.goes_on: (False, 5), client_calls.left_since: [CALL]}[function]


class Hub:
    """Its follower is given one chunk, and then nothing for as long as it waits."""

    def follow(self, *_):
        chunks = [CALLING]

        async def next_one(within):
            if chunks:
                return chunks.pop()
            with suppress(TimeoutError):
                async with asyncio.timeout(within):
                    await asyncio.Event().wait()
            return None

        return SimpleNamespace(next=next_one, close=lambda: None, is_closed=False)


@pytest.mark.regression("gateway 3")
def test_an_answer_whose_end_cannot_be_read_for_a_moment_is_not_broken_off():
    async def follow():
        following = Following(Parts(Settings(), None, Database(), Hub(), asyncio.Event()), Asked("talk", 3))
        async with asyncio.timeout(IN_PROCESS):
            while not following.is_over:
                # A heartbeat comes later than the next look.
                await following.next(2 * IN_PROCESS)
        return following.calls

    assert asyncio.run(follow()) == [CALL]
