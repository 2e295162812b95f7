"""A worker: it claims effects from their topic, each of which only one worker gets, and runs them as jobs until it is
stopped."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic, TypeVar
from uuid import uuid4

from frameledger import effects
from frameledger.errors import ConfigurationError
from frameledger_services import failpoints, logs, supervision
from frameledger_services.claims import Claimed, Registration
from frameledger_services.failpoints import Failpoint
from frameledger_services.settings import Settings
from frameledger_services.telemetry.metrics_recorder import NO_METRICS, Metrics
from frameledger_services.work.job import Perform, Session
from frameledger_services.work.kinds import JobKind
from frameledger_services.work.metrics import WorkMetrics
from frameledger_services.work.session import SessionRunner

E = TypeVar("E", bound=effects.Effect)
C = TypeVar("C", bound=Claimed)

_log = logs.get_logger("worker")


class Worker(Generic[E, C]):
    """A worker of one service. `run` begins a new session whenever the lease of the previous one has ended."""

    def __init__(
        self,
        settings: Settings,
        kind: JobKind[E, C],
        perform: Perform[C],
        *,
        service: str,
        serves: Sequence[str] = (),
        serves_all: bool = False,
        offers: Mapping[str, Any] | None = None,
        slots: int | None = None,
        per_key: int = 1,
        metrics: Metrics = NO_METRICS,
        failpoint: Failpoint = failpoints.none,
    ) -> None:
        """`serves`, `serves_all` and `offers` are those of a `Registration`. `slots` is `settings.work_slots` by
        default; `per_key` is the number of jobs of one context that may run concurrently once the jobs before them have
        released the order. Raises `ConfigurationError` for the name of the projector."""
        if service == "projector":
            raise ConfigurationError(
                "A service cannot be called projector: its consumer group would be the projector's."
            )
        self._settings = settings
        self._kind = kind
        self._perform = perform
        self._per_key = per_key
        self._failpoint = failpoint
        self._registration = Registration(
            worker_id="",
            service=service,
            kind=kind.worker,
            host=socket.gethostname(),
            pid=os.getpid(),
            lease_secs=settings.work_lease_secs,
            slots=settings.work_slots if slots is None else slots,
            serves=tuple(serves),
            serves_all=serves_all,
            offers=offers or {},
        )
        self._metrics = WorkMetrics(service, kind.worker, metrics)
        self._runner: SessionRunner[E, C] | None = None
        self._session: Session | None = None
        self._is_ready = asyncio.Event()

    async def run(self, stopping: asyncio.Event) -> None:
        """Work until `stopping` is set, then drain: wait `settings.work_drain_secs` for jobs to end, ask the rest to
        stop, release what they leave, and deregister. During an outage of broker or database it waits and logs the
        reason.

        Raises errors that are not transient: a database with another schema or of another topic prefix, or a bug, here
        or in a job.
        """
        log = _log.bind(service=self._registration.service)
        await supervision.keep_running(lambda: self._run_session(stopping), stopping, log)

    async def update_registration(
        self, *, serves: Sequence[str], serves_all: bool = False, offers: Mapping[str, Any] | None = None
    ) -> None:
        """Change what it serves. Returns once the database has it; between two sessions at once, since the next session
        registers it."""
        self._registration = replace(
            self._registration, serves=tuple(serves), serves_all=serves_all, offers=offers or {}
        )
        if (runner := self._runner) is not None:
            await runner.update_registration(replace(self._registration, worker_id=runner.session.worker_id))

    async def ready(self) -> Session:
        """Wait until it is registered, has partitions and reads cancellations. Returns its session."""
        while self._session is None:
            await self._is_ready.wait()
        return self._session

    async def _run_session(self, stopping: asyncio.Event) -> None:
        registration = replace(self._registration, worker_id=_new_id(self._registration))
        runner = SessionRunner(
            self._settings,
            self._kind,
            registration,
            self._perform,
            per_key=self._per_key,
            failpoint=self._failpoint,
            on_ready=self._on_ready,
            metrics=self._metrics,
        )
        self._runner = runner
        try:
            await runner.run(stopping)
        finally:
            self._runner = self._session = None
            self._is_ready.clear()

    def _on_ready(self, session: Session) -> None:
        self._session = session
        self._is_ready.set()


def _new_id(registration: Registration) -> str:
    return f"{registration.service}/{registration.host}/{registration.pid}/{uuid4().hex[:12]}"
