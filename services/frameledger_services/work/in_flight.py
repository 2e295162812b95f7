"""The work that a worker has in hand: jobs in executor, told when to stop, and their claims settled when they end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from frameledger import effects
from frameledger_services import claims, logs, transient
from frameledger_services.claims import Claimed, Heartbeat
from frameledger_services.claims.values import Connection
from frameledger_services.failpoints import Failpoint
from frameledger_services.keyed_executor import KeyedExecutor, Ticket
from frameledger_services.work.cancellations import Cancelled
from frameledger_services.work.job import Ending, Job, Perform, Session, StopReason
from frameledger_services.work.lease import LeaseLostError

C = TypeVar("C", bound=Claimed)

_log = logs.get_logger("worker")


class InFlightJob(Generic[C]):
    """A job, and where it goes on."""

    def __init__(self, job: Job[C]) -> None:
        self.job = job
        self.ticket: Ticket | None = None
        self.task: asyncio.Task[Any] | None = None

    @property
    def claim(self) -> str:
        """The token of the claim."""
        return self.job.claimed.claim


class InFlight(Generic[C]):
    """What one life of a worker has claimed and not settled."""

    def __init__(
        self,
        executor: KeyedExecutor,
        session: Session,
        perform: Perform[C],
        subject: Callable[[C], str],
        *,
        grace_secs: float,
        failpoint: Failpoint,
    ) -> None:
        """`subject` is what a cancellation names of a piece of work; `grace_secs` is for jobs that are sent home."""
        self._executor = executor
        self._session = session
        self._perform = perform
        self._subject = subject
        self._grace_secs = grace_secs
        self._failpoint = failpoint
        self._doing: dict[str, InFlightJob[C]] = {}
        self._ended: dict[tuple[str, str], Ending] = {}
        self._all_settled = asyncio.Event()
        self._to_settle = asyncio.Event()
        self._cancelled = Cancelled()

    def __len__(self) -> int:
        """How many jobs go on or wait for their turn."""
        return len(self._doing)

    def held(self) -> dict[str, InFlightJob[C]]:
        """The jobs by effect, as they are now. May be called from any thread."""
        return dict(self._doing)

    def known(self) -> dict[str, str]:
        """Every effect that this worker knows to have claimed and has not settled, and the token of its claim."""
        return {**dict(self._ended), **{effect: doing.claim for effect, doing in self._doing.items()}}

    def start(self, claimed: Sequence[C]) -> None:
        """Begin jobs of what was just claimed, for which there must be places in the executor."""
        for one in claimed:
            job = Job(one)
            if (before := self._doing.get(one.effect_id)) is not None:
                # Its claim was lost, by a database that lost its latest commits for one.
                before.job.tell("lost")
            doing = self._doing[one.effect_id] = InFlightJob(job)
            if self._cancelled.has(one.context_id, self._subject(one), one.version):
                job.tell("over")
            doing.ticket = self._executor.submit(one.context_id, partial(self._do, doing))
            job.release_order = doing.ticket.release_order

    async def _do(self, doing: InFlightJob[C], _: Ticket) -> None:
        doing.task = asyncio.current_task()
        ending: Ending = "release"
        try:
            ending = await self._perform(doing.job, self._session)
        except Exception as error:
            if not transient.is_transient(error, LeaseLostError):
                raise
            _log.warning(
                "worker.job_released",
                worker=self._session.worker_id,
                context_id=doing.job.claimed.context_id,
                effect=doing.job.claimed.effect_id,
                reason=transient.reason(error),
            )
        finally:
            self._ends(doing, ending)

    def _ends(self, doing: InFlightJob[C], ending: Ending) -> None:
        effect_id = doing.job.claimed.effect_id
        if self._doing.get(effect_id) is not doing:
            # It was lost, and came again as another job: the claim is that one's.
            return
        del self._doing[effect_id]
        self._ended[effect_id, doing.claim] = ending
        self._to_settle.set()

    async def settle(self) -> None:
        """Finish and release claims, as many at once as there are."""
        worker_id = self._session.worker_id
        while True:
            await self._to_settle.wait()
            self._to_settle.clear()
            for ending in sorted(set(self._ended.values())):
                held = [held for held, how in self._ended.items() if how == ending]
                await self._failpoint("before settling")
                await self._session.database.do(
                    partial(_settled, worker_id=worker_id, held=dict(held), ending=ending)
                )
                for one in held:
                    del self._ended[one]
                await self._failpoint("after settling")
            if not self._ended:
                self._all_settled.set()
                self._all_settled = asyncio.Event()

    def heard(self, answer: Heartbeat, held: Mapping[str, InFlightJob[C]]) -> None:
        """Tell those jobs that a heartbeat says are over or lost. `held` is what it was sent with: what was given back
        since may have come again as another job."""
        for effect_id in answer.over:
            held[effect_id].job.tell("over")
        for effect_id in answer.lost:
            held[effect_id].job.tell("lost")

    def cancel(self, cancel: effects.Cancel) -> None:
        """Tell the job that a cancellation names, or remember it for one that is being claimed."""
        self._cancelled.add(cancel)
        for doing in self._doing.values():
            claimed = doing.job.claimed
            if self._cancelled.has(claimed.context_id, self._subject(claimed), claimed.version):
                doing.job.tell("over")

    async def stop_all(self, why: StopReason) -> None:
        """Tell every job to stop, wait for a while, and cancel those that have not. Returns when all have ended."""
        self.drop_waiting()
        for doing in tuple(self._doing.values()):
            doing.job.tell(why)
        try:
            async with asyncio.timeout(self._grace_secs):
                await self._executor.join()
        except TimeoutError:
            _log.warning(
                "worker.jobs_cancelled", worker=self._session.worker_id, why=why, jobs=len(self._doing)
            )
            for doing in tuple(self._doing.values()):
                if doing.task is not None:
                    doing.task.cancel()
            await self._executor.join()

    def drop_waiting(self) -> None:
        """Give back what has not begun."""
        for doing in tuple(self._doing.values()):
            if doing.ticket is not None and self._executor.withdraw(doing.ticket):
                self._ends(doing, "untried")

    async def all_settled(self) -> None:
        """Returns when every claim of an ended job is settled."""
        while self._ended:
            await self._all_settled.wait()


async def _settled(connection: Connection, *, worker_id: str, held: dict[str, str], ending: Ending) -> None:
    if ending == "release" or ending == "untried":
        await claims.release(connection, worker_id, held, untried=ending == "untried")
    else:
        await claims.finish(connection, worker_id, held, ending)
