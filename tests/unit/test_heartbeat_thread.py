"""When the heartbeats of a worker consider its event loop blocked."""

import asyncio
import threading

import psycopg
import pytest
from tests.bounds import IN_PROCESS

from frameledger_services import claims
from frameledger_services.claims import Heartbeat
from frameledger_services.settings import Settings
from frameledger_services.work import heartbeat
from frameledger_services.work.heartbeat import BLOCKED_SECONDS, HeartbeatThread
from frameledger_services.work.lease import Lease

ENOUGH = 5
"""The number of heartbeats or connection attempts after which the worker would have taken a running loop for
blocked."""


class Beats:
    """A database for heartbeats. Between two of its answers the event loop of the worker runs, and much time passes;
    then that loop is busy until the next heartbeat begins, so that it runs nothing right when it is handed over."""

    def __init__(self, monkeypatch, outage):
        self.now = 0.0
        self.calls = 0
        self._outage = outage
        self._worker_loop = asyncio.get_running_loop()
        self._enough = asyncio.Event()
        self._next_begins = threading.Event()
        self.lease = Lease(1_000 * BLOCKED_SECONDS, lambda: self.now)
        self.lease.renew(0.0)
        monkeypatch.setattr(heartbeat, "connect", self._connect)
        monkeypatch.setattr(claims, "heartbeat", self._heartbeat)

    async def ends_by_itself(self):
        """Whether the heartbeats ended before there were enough of them."""
        # Time passes only between answers here, so the pause between heartbeats has to be none.
        settings = Settings.model_construct(work_heartbeat_secs=0)
        thread = HeartbeatThread(settings, "w", self.lease, self._held, lambda answer, held: None)
        run = asyncio.create_task(thread.run())
        enough = asyncio.create_task(self._enough.wait())
        async with asyncio.timeout(IN_PROCESS):
            await asyncio.wait({run, enough}, return_when=asyncio.FIRST_COMPLETED)
            ended = run.done()
            run.cancel()
            enough.cancel()
            await asyncio.wait({run, enough})
        return ended

    def _held(self):
        self._next_begins.set()
        return {}

    async def _connect(self, settings, name):
        self._next_begins.set()
        if self._outage:
            await self._time_passes()
            raise psycopg.OperationalError("The database is not available.")
        return self

    async def _heartbeat(self, connection, worker_id, held):
        await self._time_passes()
        return Heartbeat(alive=True)

    async def close(self): ...

    async def _time_passes(self):
        # What was handed over to the worker's loop before this has been run when it returns.
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._count(), self._worker_loop))
        self.now += BLOCKED_SECONDS + 1
        self._next_begins.clear()
        self._worker_loop.call_soon_threadsafe(self._be_busy)

    async def _count(self):
        self.calls += 1
        if self.calls == ENOUGH:
            self._enough.set()

    def _be_busy(self):
        if not self._enough.is_set():
            self._next_begins.wait(IN_PROCESS)


@pytest.mark.regression("worker 3")
@pytest.mark.parametrize("outage", [False, True], ids=["long intervals", "an outage of the database"])
def test_an_event_loop_that_runs_is_not_taken_for_blocked(monkeypatch, outage):
    async def run():
        return await Beats(monkeypatch, outage).ends_by_itself()

    assert not asyncio.run(run())
