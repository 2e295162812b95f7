"""The inference service in tests: in a thread of the test's process, or in a process that dies at a given point.

A point is named after what comes next: `claim` (before the claim), `compose` (claimed, nothing read), `publish TYPE`
(before a frame of that type is given to the broker) and `published TYPE` (it is on the log). The code under test knows
nothing of these points: what it calls is wrapped here. The wrapper gives frames to the broker one by one, so that the
process can die between two frames that the service publishes together, as it can with a real broker.
"""

from __future__ import annotations

import asyncio
import json
import signal
import threading
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from uuid import uuid4

import psycopg
from tests.bounds import ON_SERVERS, scaled
from tests.support.pipeline import Raw
from tests.support.processes import Process, preload, reaching

from frameledger_services import work
from frameledger_services.event_log.producer import Producer
from frameledger_services.inference import preparation
from frameledger_services.inference.service import InferenceService
from frameledger_services.providers import plugins
from frameledger_services.providers.service import LLMService
from frameledger_services.settings import Settings

preload(__name__)

QUICK = {"work_lease_secs": scaled(1.0), "work_heartbeat_secs": 0.1}
"""A short lease, so that work of dead workers is soon taken over. On a busy machine the lease of a live worker may
expire too, so such tests do not count attempts."""

STEADY = {"work_lease_secs": scaled(20.0), "work_heartbeat_secs": 0.1}
"""A lease that does not expire on a busy machine: each run has one attempt."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan for the service: at `point` it sends itself `signal`, once."""

    point: str | None = None
    signal: signal.Signals = signal.SIGKILL


def answerer(settings: Settings, plan: Plan | None = None, **options: Any) -> Process:
    """Returns a process of `run inference` with the provider of the settings, or with the model that `make` returns for
    them. It reports the name of its point when it reaches it."""
    return Process(_serve, settings, plan or Plan(), options)


class ServiceThread:
    """The service and its dependencies in an event loop of their own, in a thread of the test's process."""

    def __init__(
        self, settings: Settings, make: Callable[[Any], LLMService[Any]], needs: Any, **options: Any
    ):
        self.needed: Any = None
        self.model: LLMService[Any] | None = None
        self.answering: InferenceService | None = None
        self._settings, self._make, self._needs, self._options = settings, make, needs, options
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def begin(self) -> None:
        self._thread.start()
        assert self._ready.wait(ON_SERVERS), "the service does not start"

    def end(self) -> None:
        """Stop the service and wait for its end. Raises the error if it failed."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(ON_SERVERS)
        assert not self._thread.is_alive(), "the service does not stop"
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            asyncio.run(self._life())
        except BaseException as error:
            self._failure = error
        finally:
            self._ready.set()

    async def _life(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        async with self._needs as self.needed:
            self.model = self._make(self.needed)
            self.answering = InferenceService(self._settings, self.model, **self._options)
            self._ready.set()
            await self.answering.run(self._stopping)


@contextmanager
def answering(
    settings: Settings,
    make: Callable[[Any], LLMService[Any]],
    needs: AbstractAsyncContextManager[Any] | None = None,
    **options: Any,
):
    """Yields the service, running in a thread of the test's process. `make` receives what `needs` yields."""
    thread = ServiceThread(settings, make, needs or nullcontext(), **options)
    thread.begin()
    try:
        yield thread
    finally:
        thread.end()


def _serve(settings: Settings, plan: Plan, options: dict[str, Any], said: Any) -> None:
    reach = reaching(plan.point, plan.signal, said.send)
    _wrap(reach)

    async def life() -> None:
        stopping = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
        make = options.pop("make", None) or partial(plugins.create, settings.inference_provider or "scripted")
        model = make(settings)
        await InferenceService(settings, model, **options).run(stopping)

    asyncio.run(life())


def _wrap(reach: Callable[[str], None]) -> None:
    claim, read, publish = work.RUNS.claim, preparation.read, Producer.publish

    async def claim_runs(*args: Any, **options: Any) -> Any:
        reach("claim")
        return await claim(*args, **options)

    async def read_context(*args: Any, **options: Any) -> Any:
        reach("compose")
        return await read(*args, **options)

    async def publish_each(self: Any, topic: str, records: Any, **options: Any) -> list[Any]:
        places = []
        for record in records:
            kind = json.loads(record.value)["type"]
            reach(f"publish {kind}")
            places += await publish(self, topic, [record], **options)
            reach(f"published {kind}")
        return places

    vars(work)["RUNS"] = replace(work.RUNS, claim=claim_runs)
    vars(preparation)["read"] = read_context
    setattr(Producer, "publish", publish_each)  # noqa: B010  # mypy knows that it is a method


def frame(frame_type, **fields):
    return json.dumps({"type": frame_type, "id": str(uuid4()), **fields}).encode()


def ask(pipeline, context_id, text="Hello?", *before):
    asking = frame("LLMMessagesAppendFrame", messages=[{"role": "user", "content": text}], run_llm=True)
    pipeline.publish([Raw(context_id.encode(), one) for one in (*before, asking)])


def rows(pipeline, query, *parameters):
    with psycopg.connect(pipeline.address) as connection:
        return connection.execute(query, parameters).fetchall()


def context(pipeline, context_id):
    [(found,)] = rows(
        pipeline, "SELECT context_at(%s, version) FROM contexts WHERE context_id = %s", context_id, context_id
    )
    return found


def spoken(pipeline, context_id):
    return [(one["role"], one.get("content")) for one in context(pipeline, context_id)["messages"]]


def until_closed(pipeline, *context_ids):
    for context_id in context_ids:
        pipeline.until(
            "SELECT count(*) > 0 AND bool_and(status NOT IN ('requested', 'open')) FROM runs WHERE context_id = %s",
            context_id,
        )
