"""A worker in a process of its own that kills or freezes itself at a named step."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import time
from contextlib import contextmanager
from typing import Any

import psutil
from tests.bounds import ON_SERVERS, scaled

from frameledger.frames import LLMRunFrame
from frameledger_services import process
from frameledger_services.event_log.consumer import consumer
from frameledger_services.settings import Settings
from frameledger_services.work import RUNS, LeaseLostError, Worker, effect_consumer

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload([__name__])

SERVICE = "killable"


class Killable:
    """The process, seen from the test. What its jobs say is heard in order."""

    def __init__(self, settings: Settings, point: str | None, number: signal.Signals, holds: bool) -> None:
        self._heard, said = _processes.Pipe(duplex=False)
        self._process = _processes.Process(target=_work, args=(settings, point, number, holds, said))
        self._process.start()
        said.close()

    def hear(self) -> Any:
        assert self._heard.poll(ON_SERVERS), "the worker says nothing"
        return self._heard.recv()

    def ended(self) -> int:
        """Wait for its end; its exit code, below zero for a signal."""
        self._process.join(ON_SERVERS)
        assert self._process.exitcode is not None, "the worker does not end"
        return self._process.exitcode

    def frozen(self) -> None:
        """Wait until it has stopped itself."""
        process = psutil.Process(self._process.pid)
        until = time.monotonic() + ON_SERVERS
        while process.status() != psutil.STATUS_STOPPED:
            assert time.monotonic() < until, process.status()

    def send(self, number: signal.Signals) -> None:
        assert self._process.pid is not None
        os.kill(self._process.pid, number)

    def kill(self) -> None:
        self._process.kill()
        self._process.join()


@contextmanager
def killable(
    settings: Settings,
    point: str | None = None,
    number: signal.Signals = signal.SIGKILL,
    *,
    holds: bool = False,
):
    """A worker that sends itself a signal when it first comes to `point`. With `holds`, jobs end when they are told."""
    started = Killable(settings, point, number, holds)
    try:
        yield started
    finally:
        started.kill()


def quick_to_notice(*args: Any, **options: Any) -> Any:
    """A consumer whose group notices soon that it is dead."""
    return consumer(
        *args, **{"session_timeout_ms": int(scaled(1_000)), "heartbeat_interval_ms": 100} | options
    )


def _work(settings: Settings, point: str | None, number: signal.Signals, holds: bool, said: Any) -> None:
    async def failpoint(step: str) -> None:
        nonlocal point
        if step == point:
            point = None
            os.kill(os.getpid(), number)

    async def perform(job: Any, living: Any) -> Any:
        said.send(("began", job.claimed.context_id, job.claimed.attempt))
        if not holds:
            return "done"
        await job.stop.wait()
        try:
            await living.publisher.publish(
                job.claimed.context_id, LLMRunFrame(), causation_id=job.claimed.causation_id
            )
        except LeaseLostError as error:
            said.send(("told", job.stop_reason, type(error).__name__))
        else:
            said.send(("told", job.stop_reason, "published"))
        return "release"

    async def serve(stopping: asyncio.Event) -> None:
        worker = Worker(settings, RUNS, perform, service=SERVICE, serves_all=True, failpoint=failpoint)
        await worker.run(stopping)

    vars(effect_consumer)["consumer"] = quick_to_notice
    process.run_service(serve)
