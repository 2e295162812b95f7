"""A worker in a process of its own that kills or freezes itself at a named step."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

from tests.bounds import scaled
from tests.support.processes import Process, preload, reaching

from frameledger.frames import LLMRunFrame
from frameledger_services import process
from frameledger_services.event_log.consumer import consumer
from frameledger_services.settings import Settings
from frameledger_services.work import RUNS, LeaseLostError, Worker, effect_consumer

preload(__name__)

SERVICE = "killable"


def killable(
    settings: Settings,
    point: str | None = None,
    number: signal.Signals = signal.SIGKILL,
    *,
    holds: bool = False,
) -> Process:
    """Returns a worker that sends itself a signal when it first reaches `point`. With `holds`, jobs run until the test
    ends them. Reports of its jobs arrive in order."""
    return Process(_work, settings, point, number, holds)


def quick_to_notice(*args: Any, **options: Any) -> Any:
    """Returns a consumer with a short session timeout, so that its group soon notices its death."""
    return consumer(
        *args, **{"session_timeout_ms": int(scaled(1_000)), "heartbeat_interval_ms": 100} | options
    )


def _work(settings: Settings, point: str | None, number: signal.Signals, holds: bool, said: Any) -> None:
    reach = reaching(point, number)

    async def failpoint(step: str) -> None:
        reach(step)

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
