"""A worker: effects off their topic, each claimed by one, done in executor, until it is told to stop."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Generic, TypeVar
from uuid import uuid4

import structlog

from frameledger_services import failpoints, transient
from frameledger_services.claims import Claimed, Registration
from frameledger_services.failpoints import Failpoint
from frameledger_services.settings import Settings
from frameledger_services.work.job import Perform, Session
from frameledger_services.work.kinds import JobKind
from frameledger_services.work.session import SessionRunner

SHORTEST_PAUSE, LONGEST_PAUSE = 0.5, 10.0
"""Seconds between two tries to begin a life; short again after one that lasted longer than the longest."""

E = TypeVar("E")
C = TypeVar("C", bound=Claimed)

_log = structlog.get_logger("worker")


class Worker(Generic[E, C]):
    """A worker of one service. `run` lives as many lives as it takes: one ends when its lease is over."""

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
        failpoint: Failpoint = failpoints.none,
    ) -> None:
        """`slots` is `settings.work_slots` if not given; `per_key` is how many jobs of one context go on at once, where
        those before have passed their lane on."""
        if service == "projector":
            raise ValueError(
                "a service cannot be called projector: its consumer group would be the projector's"
            )
        self._settings = settings
        self._kind = kind
        self._perform = perform
        self._per_key = per_key
        self._failpoint = failpoint
        self._offer = Registration(
            worker_id="",
            service=service,
            kind=kind.kind,
            host=socket.gethostname(),
            pid=os.getpid(),
            lease_secs=settings.work_lease_secs,
            slots=settings.work_slots if slots is None else slots,
            serves=tuple(serves),
            serves_all=serves_all,
            offers=offers or {},
        )
        self._runner: SessionRunner[E, C] | None = None
        self._began = _Began()

    async def run(self, stopping: asyncio.Event) -> None:
        """Work until `stopping` is set, then drain: wait `settings.work_drain_secs` for jobs, then tell them, release
        what they leave, and go. What is away for a while is waited for, and said.

        Raises what waiting does not mend: a database of another shape, a bug, here or in a job.
        """
        loop = asyncio.get_running_loop()
        pause = SHORTEST_PAUSE
        while not stopping.is_set():
            began = loop.time()
            try:
                await self._live(stopping)
            except* transient.EITHER as errors:
                what = transient.reason(errors.exceptions[0])
                if loop.time() - began > LONGEST_PAUSE:
                    pause = SHORTEST_PAUSE
                _log.warning("waiting", service=self._offer.service, reason=what, again_in=pause)
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await stopping.wait()
                pause = min(pause * 2, LONGEST_PAUSE)

    async def update_registration(
        self, *, serves: Sequence[str], serves_all: bool = False, offers: Mapping[str, Any] | None = None
    ) -> None:
        """What it serves has changed: returns when the database knows; at once if the worker does not live now, and it
        begins its next life so."""
        self._offer = replace(self._offer, serves=tuple(serves), serves_all=serves_all, offers=offers or {})
        if (runner := self._runner) is not None:
            await runner.update_registration(replace(self._offer, worker_id=runner.session.worker_id))

    async def ready(self) -> Session:
        """Wait until it lives, has been given partitions and hears cancellations; its life."""
        return await self._began.wait()

    async def _live(self, stopping: asyncio.Event) -> None:
        offer = replace(self._offer, worker_id=_new_id(self._offer))
        runner = SessionRunner(
            self._settings,
            self._kind,
            offer,
            self._perform,
            per_key=self._per_key,
            failpoint=self._failpoint,
            began=self._began.set,
        )
        self._runner = runner
        try:
            await runner.run(stopping)
        finally:
            self._runner = None
            self._began.clear()


class _Began:
    """The life that goes on, for those who wait for one."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._session: Session | None = None

    def set(self, session: Session) -> None:
        self._session = session
        self._event.set()

    def clear(self) -> None:
        self._session = None
        self._event.clear()

    async def wait(self) -> Session:
        while self._session is None:
            await self._event.wait()
        return self._session


def _new_id(offer: Registration) -> str:
    return f"{offer.service}/{offer.host}/{offer.pid}/{uuid4().hex[:12]}"
