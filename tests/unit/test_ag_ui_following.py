"""What is read from the database for the events of a run of AG-UI."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.stored_frame import stored_frame

from frameledger.frames import LLMTextFrame
from frameledger_services.gateway.ag_ui.following import FollowedRun
from frameledger_services.gateway.dependencies import Dependencies
from frameledger_services.gateway.live.follower import Chunk
from frameledger_services.settings import Settings
from frameledger_services.store.client_requests import AskedRun
from frameledger_services.store.following import StreamHead


class Database:
    """Notes what is read."""

    def __init__(self):
        self.read_by = []

    async def read(self, function, *_):
        self.read_by.append(function.__name__)
        return {"goes_on": (False, 5), "waiting": []}[function.__name__]


class Hub:
    """Its follower is given one chunk."""

    def __init__(self, chunk):
        self.chunk = chunk

    def follow(self, *_):
        async def next_one(_):
            return self.chunk

        return SimpleNamespace(next=next_one)


def read_for(status, open_run_id):
    """What is read for a piece of an answer at which the conversation stands so."""

    async def follow():
        database = Database()
        piece: Any = stored_frame(LLMTextFrame(text="Yes.", run_id="r"), version=5)
        head = StreamHead(5, status, False, open_run_id)
        also = {"is_all": True, "exists": True, "erased_version": None, "ended": False}
        hub = Hub(Chunk(b"", 5, **also, frames=[piece], head=head))
        run = FollowedRun(
            Dependencies(Settings(), None, database, hub, asyncio.Event()), "shop", AskedRun(1, "r1")
        )
        await run.next(0)
        return database.read_by, run.is_over

    return asyncio.run(follow())


@pytest.mark.regression("gateway 4")
def test_nothing_is_read_for_the_pieces_of_an_answer():
    assert read_for("answering", "r") == ([], False)


def test_whether_anything_goes_on_is_read_where_no_run_is_open():
    assert read_for("quiet", None) == (["goes_on", "waiting"], True)
