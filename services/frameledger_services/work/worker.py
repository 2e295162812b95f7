"""A worker: effects off their topic, each claimed by one, done in lanes, until it is told to stop."""

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
from frameledger_services.claims import Claimed, Offer
from frameledger_services.failpoints import Failpoint
from frameledger_services.settings import Settings
from frameledger_services.work.job import Life, Perform
from frameledger_services.work.living import Living
from frameledger_services.work.trades import Trade

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
        trade: Trade[E, C],
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
        self._trade = trade
        self._perform = perform
        self._per_key = per_key
        self._failpoint = failpoint
        self._offer = Offer(
            worker_id="",
            service=service,
            kind=trade.kind,
            host=socket.gethostname(),
            pid=os.getpid(),
            lease_secs=settings.work_lease_secs,
            slots=settings.work_slots if slots is None else slots,
            serves=tuple(serves),
            serves_all=serves_all,
            offers=offers or {},
        )
        self._living: Living[E, C] | None = None
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

    async def offer_again(
        self, *, serves: Sequence[str], serves_all: bool = False, offers: Mapping[str, Any] | None = None
    ) -> None:
        """What it serves has changed: returns when the database knows; at once if the worker does not live now, and it
        begins its next life so."""
        self._offer = replace(self._offer, serves=tuple(serves), serves_all=serves_all, offers=offers or {})
        if (living := self._living) is not None:
            await living.offer_again(replace(self._offer, worker_id=living.life.worker_id))

    async def alive(self) -> Life:
        """Wait until it lives, has been given partitions and hears cancellations; its life."""
        return await self._began.wait()

    async def _live(self, stopping: asyncio.Event) -> None:
        offer = replace(self._offer, worker_id=_new_id(self._offer))
        living = Living(
            self._settings,
            self._trade,
            offer,
            self._perform,
            per_key=self._per_key,
            failpoint=self._failpoint,
            began=self._began.set,
        )
        self._living = living
        try:
            await living.run(stopping)
        finally:
            self._living = None
            self._began.clear()


class _Began:
    """The life that goes on, for those who wait for one."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._life: Life | None = None

    def set(self, life: Life) -> None:
        self._life = life
        self._event.set()

    def clear(self) -> None:
        self._life = None
        self._event.clear()

    async def wait(self) -> Life:
        while self._life is None:
            await self._event.wait()
        return self._life


def _new_id(offer: Offer) -> str:
    return f"{offer.service}/{offer.host}/{offer.pid}/{uuid4().hex[:12]}"
