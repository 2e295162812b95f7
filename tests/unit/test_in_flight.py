"""The jobs of a worker, with a fake executor."""

import asyncio
from contextlib import suppress
from types import SimpleNamespace

import pytest

from frameledger_services import failpoints
from frameledger_services.claims import ClaimedRun
from frameledger_services.keyed_executor import Ticket
from frameledger_services.work.in_flight import InFlight
from frameledger_services.work.job_span import WorkSource

CLAIMED = ClaimedRun("e", "ctx", 7, "run", 1, "claim", None)


class BeginsAtOnce:
    """Begins jobs where they are submitted, as in a program whose event loop has asyncio's eager task factory."""

    def __init__(self):
        self.released = []

    def submit(self, key, job):
        ticket = Ticket(key, job, lambda: self.released.append(key))
        with suppress(StopIteration):
            job(ticket).send(None)
        return ticket


@pytest.mark.regression("worker 173")
def test_a_job_that_begins_where_it_is_submitted_can_let_the_next_of_its_context_begin():
    executor = BeginsAtOnce()

    async def perform(job, session):
        job.release_order()
        return "done"

    async def run():
        session = SimpleNamespace(worker_id="worker")
        source = WorkSource("topic", "group")
        jobs = InFlight(
            executor,
            session,
            perform,
            lambda _: "call",
            source=source,
            grace_secs=0,
            failpoint=failpoints.none,
        )
        jobs.start([CLAIMED])

    asyncio.run(run())
    assert executor.released == ["ctx"]
