"""The inference service: runs off their topic, each answered once, many contexts at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar

from frameledger.frames import AnyFrame
from frameledger.ids import ContextId
from frameledger_services import logs, transient, work
from frameledger_services.claims import ClaimedRun
from frameledger_services.inference import preparation
from frameledger_services.inference.answering import answer
from frameledger_services.inference.dependencies import PreparedRequest, RunDependencies
from frameledger_services.providers.errors import ProviderError
from frameledger_services.providers.service import LLMService
from frameledger_services.settings import Settings
from frameledger_services.store.connections import Connections, DatabaseError
from frameledger_services.store.contexts import NoSuchContextError, NoSuchVersionError

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
    ) -> None:
        """`service` is the name that all who share its work have, and all of them have the same `models`.

        `models` are the only models that it answers for, beside contexts that name none. Without them it answers for
        its own model, and for what no live worker lists. `slots` is how many runs go on at once. The model service may
        be set up otherwise while this runs, by `append_system_instruction` for one: requests from then on follow it.
        """
        self._settings = settings
        self._model = model
        self._connections = Connections(settings, "frameledger inference")
        self._offered = preparation.service_config(model)
        own = model.settings.model or model.default_model
        self._worker = work.Worker(
            settings,
            work.RUNS,
            self._perform,
            service=service or default_name(model.provider),
            serves=tuple(models) or ((own,) if own else ()),
            serves_all=not models,
            offers=self._offered,
            slots=slots,
        )

    async def run(self, stopping: asyncio.Event) -> None:
        """Answer until `stopping` is set, then finish what can be finished and hand over the rest."""
        await self._model.start()
        try:
            await self._worker.run(stopping)
        finally:
            await self._model.stop()
            await self._connections.close()

    async def _perform(self, job: work.Job[ClaimedRun], session: work.Session) -> work.Ending:
        """One run. What it was told to leave it leaves at once: the stream is closed, nothing more is published."""
        run = job.claimed
        publishing = _Publishing(session.publisher)
        world = RunDependencies(
            worker=session.worker_id,
            compose=partial(self._compose, run),
            publish=publishing.publish,
            next_attempt=partial(session.next_attempt, run),
            merge_secs=self._settings.inference_merge_ms / 1000,
            retries=self._settings.inference_retries,
            # Twice before the timekeeper takes the run for dead; 0 says that it never does.
            life_every_secs=self._settings.timekeeper_run_silent_secs / 3 or None,
            hidden=self._model.secrets(),
        )
        try:
            outcome = await _unless(job.stop, answer(run, self._model, world))
        except (NoSuchContextError, NoSuchVersionError) as error:
            _log.warning(
                "run.nothing_to_answer", context_id=run.context_id, run_id=run.run_id, reason=str(error)
            )
            return "over"
        except (_ParkedError, DatabaseError) as error:
            _log.warning("run.not_answered", context_id=run.context_id, run_id=run.run_id, reason=str(error))
            return publishing.given_back
        if outcome is not None:
            return outcome
        return "over" if job.stop_reason == "obsolete" else publishing.given_back

    async def _compose(self, run: ClaimedRun) -> PreparedRequest:
        stored, cancel_tools = await self._connections.read(preparation.read, run.context_id, run.version)
        if stored.parked_version is not None:
            raise _ParkedError(
                f"The context {run.context_id} is parked since version {stored.parked_version}."
            )
        request = preparation.request_of(self._model, stored, cancel_tools)
        if isinstance(request, ProviderError):
            return PreparedRequest(request, stored.skip_tts)
        metadata = preparation.metadata_of(request, preparation.service_config(self._model), self._offered)
        return PreparedRequest(request, stored.skip_tts, metadata)


def default_name(provider: str) -> str:
    """The name of a service that nobody named. Services of two providers must see every run, so it is not the same."""
    return f"inference-{provider}"


class _ParkedError(Exception):
    """It was parked after it was claimed. Whoever takes the run when it is not parked any more answers."""


class _Publishing:
    """What one claim publishes, and so whether it counts as an attempt."""

    def __init__(self, publisher: work.Publisher) -> None:
        self._publisher = publisher
        self.given_back: work.Ending = "untried"

    async def publish(self, context_id: ContextId, frames: Sequence[AnyFrame]) -> None:
        # Also if it fails: it may arrive.
        self.given_back = "release"
        await self._publisher.publish(context_id, *frames)


async def _unless(stop: asyncio.Event, working: Coroutine[Any, Any, _T]) -> _T | None:
    """What the work returns; None if it was told to stop before that. Then it was cancelled, and is at its end."""
    if stop.is_set():
        working.close()
        return None
    try:
        async with asyncio.TaskGroup() as tasks:
            work_task, stop_task = tasks.create_task(working), tasks.create_task(stop.wait())
            await asyncio.wait((work_task, stop_task), return_when=asyncio.FIRST_COMPLETED)
            work_task.cancel()
            stop_task.cancel()
    except BaseExceptionGroup as errors:
        raise transient.first(errors) from None
    return None if work_task.cancelled() else work_task.result()
