"""The inference service: answers the runs of its topic, each by one worker only, for many contexts concurrently."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar

from frameledger_services import exception_groups, logs, work
from frameledger_services.claims import ClaimedRun
from frameledger_services.inference import preparation
from frameledger_services.inference.answering import answer
from frameledger_services.inference.dependencies import PreparedRequest, RunDependencies
from frameledger_services.inference.limits import RunLimits
from frameledger_services.inference.metrics import InferenceMetrics
from frameledger_services.inference.run_publisher import RunPublisher
from frameledger_services.inference.stream_closing import CLOSING_SECONDS
from frameledger_services.providers.errors import ProviderError
from frameledger_services.providers.request import Request
from frameledger_services.providers.service import LLMService
from frameledger_services.settings import Settings
from frameledger_services.store.connections import Connections, DatabaseError
from frameledger_services.store.contexts import NoSuchContextError, NoSuchVersionError
from frameledger_services.telemetry import names
from frameledger_services.telemetry.metrics_recorder import NO_METRICS, Metrics

CANCEL_AGAIN_SECONDS = CLOSING_SECONDS + 1.0
"""How long closing the stream may take after a cancellation; a second cancellation would end that, too."""

_T = TypeVar("_T")
_log = logs.get_logger("inference")


class InferenceService(work.BackgroundService):
    """A worker that answers with one model service, under one name."""

    def __init__(
        self,
        settings: Settings,
        model: LLMService[Any],
        *,
        service: str | None = None,
        models: Sequence[str] = (),
        slots: int | None = None,
        metrics: Metrics = NO_METRICS,
    ) -> None:
        """`service` is the name of its consumer group; services that share their work have the same name and `models`.

        `models` are the only models that it answers for, besides contexts that name none. Without them it answers for
        its own model, and for those that no live worker lists. `slots` is the number of runs that it answers
        concurrently. The model service may be changed while this runs, for instance by `append_system_instruction`;
        later requests use the change. `metrics` records its metrics; the caller exposes them, for example with
        `telemetry.ops_server`.
        """
        self._settings = settings
        self._model = model
        self._limits = RunLimits(settings)
        self._registered = preparation.service_config(model)
        own = model.settings.model or model.default_model
        self._worker = work.Worker(
            settings,
            work.RUNS,
            self._perform,
            service=service or default_name(model.provider),
            serves=tuple(models) or ((own,) if own else ()),
            serves_all=not models,
            offers=self._registered,
            slots=slots,
            metrics=metrics,
        )
        self._metrics = InferenceMetrics(metrics)

    async def run(self, stopping: asyncio.Event) -> None:
        """Answer until `stopping` is set, then finish what can be finished in time, and release the rest."""
        with self._running_alone():
            # The end of each run closes its connections.
            self._connections = Connections(
                self._settings, "frameledger inference", role="frameledger_worker"
            )
            await self._model.start()
            try:
                await self._worker.run(stopping)
            finally:
                await self._model.stop()
                await self._connections.close()

    async def _perform(self, job: work.Job[ClaimedRun], session: work.Session) -> work.Ending:
        """Answer one run. If it is asked to stop, it stops at once: the stream is closed, and nothing more is
        published."""
        run = job.claimed
        publishing = RunPublisher(session.publisher, run)
        dependencies = RunDependencies(
            worker=session.worker_id,
            prepare=partial(self._prepare, run),
            publish=publishing.publish,
            next_attempt=partial(session.next_attempt, run),
            merge_secs=self._settings.inference_merge_ms / 1000,
            retries=self._settings.inference_retries,
            # Twice before the timekeeper fails the run for silence; 0 disables that.
            keepalive_secs=self._settings.timekeeper_run_silent_secs / 3 or None,
            secrets=self._model.secrets(),
            metrics=self._metrics,
            calls_per_run=self._settings.limit_calls_per_run or None,
        )
        try:
            outcome = await _unless(job.stop, answer(run, self._model, dependencies))
        except (NoSuchContextError, NoSuchVersionError) as error:
            _log.warning(
                "run.nothing_to_answer", context_id=run.context_id, run_id=run.run_id, reason=str(error)
            )
            return "over"
        except (_ParkedError, DatabaseError) as error:
            _log.warning("run.not_answered", context_id=run.context_id, run_id=run.run_id, reason=str(error))
            return publishing.if_released
        if outcome is not None:
            return outcome
        if job.stop_reason == "obsolete":
            job.span.set(names.INTERRUPTED, True)
            return "over"
        return publishing.if_released

    async def _prepare(self, run: ClaimedRun) -> PreparedRequest:
        stored, cancel_tools = await self._connections.read(preparation.read, run.context_id, run.version)
        if stored.parked_version is not None:
            raise _ParkedError(
                f"The context {run.context_id} is parked since version {stored.parked_version}."
            )
        request = preparation.request_of(self._model, stored, cancel_tools)
        if isinstance(request, Request):
            beyond = self._limits.size(stored, request) or await self._connections.read(
                self._limits.used, run, stored
            )
            request = beyond or request
        if isinstance(request, ProviderError):
            return PreparedRequest(request, stored.skip_tts)
        metadata = preparation.metadata_of(request, preparation.service_config(self._model), self._registered)
        return PreparedRequest(request, stored.skip_tts, metadata)


def default_name(provider: str) -> str:
    """Returns the default name of a service. It contains the provider, because services of two providers must each see
    every run."""
    return f"inference-{provider}"


class _ParkedError(Exception):
    """The context was parked after the run was claimed. The run is answered once the context is resumed."""


async def _unless(stop: asyncio.Event, working: Coroutine[Any, Any, _T]) -> _T | None:
    """Returns the result of `working`; None if `stop` was set before it, once the cancelled work has ended."""
    if stop.is_set():
        working.close()
        return None
    try:
        async with asyncio.TaskGroup() as tasks:
            work_task, stop_task = tasks.create_task(working), tasks.create_task(stop.wait())
            await asyncio.wait((work_task, stop_task), return_when=asyncio.FIRST_COMPLETED)
            stop_task.cancel()
            # Again, because a provider may misinterpret a cancellation, and continue.
            while not work_task.done():
                work_task.cancel()
                await asyncio.wait((work_task,), timeout=CANCEL_AGAIN_SECONDS)
    except BaseExceptionGroup as errors:
        raise exception_groups.first(errors) from None
    return None if work_task.cancelled() else work_task.result()
