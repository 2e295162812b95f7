"""The jobs that a worker has in flight: run by the executor, asked to stop, and their claims settled when they end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Generic, TypeVar

from frameledger import effects
from frameledger_services import claims, logs, transient
from frameledger_services.claims import Claimed, Heartbeat
from frameledger_services.database_types import Connection
from frameledger_services.failpoints import Failpoint
from frameledger_services.keyed_executor import KeyedExecutor, Ticket
from frameledger_services.telemetry import names
from frameledger_services.work.cancellations import Cancelled
from frameledger_services.work.job import Ending, Job, Perform, Session, StopReason
from frameledger_services.work.job_span import WorkSource, job_span
from frameledger_services.work.lease import LeaseLostError

CANCEL_AGAIN_SECONDS = 1.0

C = TypeVar("C", bound=Claimed)

_log = logs.get_logger("worker")


class InFlightJob(Generic[C]):
    """A job, and its place in the executor."""

    def __init__(self, job: Job[C]) -> None:
        self.job = job
        self.ticket: Ticket | None = None

    @property
    def claim(self) -> str:
        """The token of the claim."""
        return self.job.claimed.claim


class InFlight(Generic[C]):
    """The claimed and unsettled work of one session of a worker."""

    def __init__(
        self,
        executor: KeyedExecutor,
        session: Session,
        perform: Perform[C],
        subject: Callable[[C], str],
        *,
        source: WorkSource,
        grace_secs: float,
        failpoint: Failpoint,
    ) -> None:
        """`subject` returns the id that a cancellation names; `source` is where the work arrives; a job that is asked
        to stop may take `grace_secs`."""
        self._executor = executor
        self._session = session
        self._perform = perform
        self._subject = subject
        self._source = source
        self._grace_secs = grace_secs
        self._failpoint = failpoint
        self._jobs: dict[str, InFlightJob[C]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        """The tasks of all jobs that have begun, including a job whose claim was lost and now belongs to another
        job."""

        self._ended: dict[tuple[str, str], Ending] = {}
        self._all_settled = asyncio.Event()
        self._to_settle = asyncio.Event()
        self._cancelled = Cancelled()

    def __len__(self) -> int:
        """Returns the number of jobs that run or wait."""
        return len(self._jobs)

    def by_effect(self) -> dict[str, InFlightJob[C]]:
        """Returns a copy of the jobs by effect. May be called from any thread."""
        return dict(self._jobs)

    def unsettled(self) -> dict[str, str]:
        """Returns every effect whose claim this worker knows and has not settled, with the token of the claim."""
        # The keys are pairs of effect and token. `dict` would copy a mapping with a method `keys()`.
        return dict(self._ended.keys()) | {effect: entry.claim for effect, entry in self._jobs.items()}

    def start(self, claimed: Sequence[C]) -> None:
        """Submit jobs for newly claimed work. The executor must have free slots for them."""
        for claimed_work in claimed:
            job = Job(claimed_work)
            if (before := self._jobs.get(claimed_work.effect_id)) is not None:
                # The earlier job's claim was lost, for instance by a database that lost its latest commits.
                before.job.request_stop("claim_lost")
            entry = self._jobs[claimed_work.effect_id] = InFlightJob(job)
            if self._cancelled.has(
                claimed_work.context_id, self._subject(claimed_work), claimed_work.version
            ):
                job.request_stop("obsolete")
            entry.ticket = self._executor.submit(claimed_work.context_id, partial(self._run, entry))

    async def _run(self, entry: InFlightJob[C], ticket: Ticket) -> None:
        # Not by who submits it: with asyncio's eager task factory it has begun by then.
        entry.job.release_order = ticket.release_order
        task = asyncio.current_task()
        assert task is not None, "the executor runs each job in a task"
        self._tasks.add(task)
        ending: Ending = "release"
        try:
            with job_span(entry.job.claimed, self._source, self._session.worker_id) as span:
                entry.job.span = span
                ending = await self._perform(entry.job, self._session)
                span.set(names.CLAIM_ENDING, ending)
        except Exception as error:
            if not transient.is_transient(error, LeaseLostError):
                raise
            _log.warning(
                "worker.job_released",
                worker=self._session.worker_id,
                context_id=entry.job.claimed.context_id,
                effect=entry.job.claimed.effect_id,
                reason=transient.reason(error),
            )
        finally:
            self._tasks.discard(task)
            self._on_end(entry, ending)

    def _on_end(self, entry: InFlightJob[C], ending: Ending) -> None:
        effect_id = entry.job.claimed.effect_id
        if self._jobs.get(effect_id) is not entry:
            # Its claim was lost and claimed again for another job, which owns it now.
            return
        del self._jobs[effect_id]
        self._ended[effect_id, entry.claim] = ending
        self._to_settle.set()

    async def settle(self) -> None:
        """Finish and release claims of ended jobs, in batches, until cancelled."""
        worker_id = self._session.worker_id
        while True:
            await self._to_settle.wait()
            self._to_settle.clear()
            for ending in sorted(set(self._ended.values())):
                claims_of = [claim for claim, how in self._ended.items() if how == ending]
                await self._failpoint("before settling")
                await self._session.database.do(
                    partial(_settle, worker_id=worker_id, held=dict(claims_of), ending=ending)
                )
                for effect_id in claims_of:
                    del self._ended[effect_id]
                await self._failpoint("after settling")
            if not self._ended:
                self._all_settled.set()
                self._all_settled = asyncio.Event()

    def apply_heartbeat(self, answer: Heartbeat, held: Mapping[str, InFlightJob[C]]) -> None:
        """Ask those jobs to stop whose work a heartbeat reports as obsolete or lost. `held` are the effects with which
        it was sent: an effect may belong to another job by now."""
        for effect_id in answer.obsolete:
            held[effect_id].job.request_stop("obsolete")
        for effect_id in answer.lost:
            held[effect_id].job.request_stop("claim_lost")

    def cancel(self, cancel: effects.Cancel) -> None:
        """Ask the job that a cancellation names to stop, or keep the cancellation for a job that is being claimed."""
        self._cancelled.add(cancel)
        for entry in self._jobs.values():
            claimed = entry.job.claimed
            if self._cancelled.has(claimed.context_id, self._subject(claimed), claimed.version):
                entry.job.request_stop("obsolete")

    async def stop_all(self, why: StopReason) -> None:
        """Ask every job to stop, wait `grace_secs`, and cancel tasks that still run, repeatedly, because a task may
        misinterpret a cancellation. Returns when all have ended."""
        self.release_waiting()
        for entry in tuple(self._jobs.values()):
            entry.job.request_stop(why)
        try:
            async with asyncio.timeout(self._grace_secs):
                await self._executor.join()
        except TimeoutError:
            _log.warning(
                "worker.jobs_cancelled", worker=self._session.worker_id, why=why, jobs=len(self._tasks)
            )
            while self._executor.is_busy:
                for task in tuple(self._tasks):
                    task.cancel()
                with suppress(TimeoutError):
                    async with asyncio.timeout(CANCEL_AGAIN_SECONDS):
                        await self._executor.join()

    def release_waiting(self) -> None:
        """Release jobs that have not begun."""
        for entry in tuple(self._jobs.values()):
            if entry.ticket is not None and self._executor.withdraw(entry.ticket):
                self._on_end(entry, "untried")

    async def until_all_settled(self) -> None:
        """Returns when every claim of an ended job is settled."""
        while self._ended:
            await self._all_settled.wait()


async def _settle(connection: Connection, *, worker_id: str, held: dict[str, str], ending: Ending) -> None:
    if ending == "release" or ending == "untried":
        await claims.release(connection, worker_id, held, untried=ending == "untried")
    else:
        await claims.finish(connection, worker_id, held, ending)
