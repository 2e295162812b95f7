"""The database reads for the events of an AG-UI run."""

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
from frameledger_services.store.client_calls import WaitingCall
from frameledger_services.store.client_requests import AskedRun
from frameledger_services.store.following import StreamHead

CALL = WaitingCall("c", "pay", 3, "Anna", None, by_client=False, interrupted=False)


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
    assert read_for("quiet", None) == (["waiting", "goes_on"], True)


@pytest.mark.regression("gateway 124")
@pytest.mark.parametrize("before", range(3))
def test_a_call_that_somebody_answers_while_the_end_of_a_run_is_read_is_not_left_out_of_a_run_that_ends(
    before,
):
    class AnsweredMeanwhile:
        """Somebody answers the call after so many reads: the conversation goes on."""

        reads = 0

        async def read(self, function, *_):
            is_answered = self.reads >= before
            self.reads += 1
            return {
                "goes_on": (True, 6) if is_answered else (False, 5),
                "waiting": [] if is_answered else [CALL],
            }[function.__name__]

    async def follow():
        head = StreamHead(5, "waiting", False, None)
        chunk = Chunk(b"", 5, is_all=True, exists=True, erased_version=None, ended=False, head=head)
        dependencies = Dependencies(Settings(), None, AnsweredMeanwhile(), Hub(chunk), asyncio.Event())
        run = FollowedRun(dependencies, "shop", AskedRun(1, "r1"))
        batches = await run.next(0)
        return run.is_over, [event for batch in batches for event in batch.events]

    is_over, events = asyncio.run(follow())
    assert is_over == any("interrupts" in event.get("outcome", {}) for event in events), events
