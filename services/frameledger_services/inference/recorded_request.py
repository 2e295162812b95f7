"""The request of an attempt, rebuilt from the log: byte for byte what was sent to the provider."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from frameledger.errors import NotFoundError
from frameledger.frames import LLMFullResponseStartFrame
from frameledger.record import decode
from frameledger_services import claims
from frameledger_services.database_types import Connection
from frameledger_services.inference.preparation import CANCEL_TOOLS, CONFIG, apply_config, request_of
from frameledger_services.providers.errors import ProviderError
from frameledger_services.providers.request import Request
from frameledger_services.providers.service import LLMService
from frameledger_services.store import contexts, history
from frameledger_services.store.contexts import StoredContext


class NoRequestError(NotFoundError):
    """A run has no request that can be rebuilt. The message says what is missing.

    Remedy: Name a run that has started, of a provider that is installed.
    """


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """The request of one attempt as far as the log and the worker's row have it."""

    start: LLMFullResponseStartFrame
    config: Mapping[str, Any]
    """The configuration with which the service made its requests."""

    stored: StoredContext


async def recorded_request(
    connection: Connection, context_id: str, run_id: str, attempt: int | None = None
) -> RecordedRequest:
    """Returns what is recorded about the request of a run's attempt, by default of the latest one.

    Raises `NoRequestError`, and `NoSuchContextError` for a context that does not exist.
    """
    start = await _start(connection, context_id, run_id, attempt)
    if start.worker is None or start.context_version is None or start.request_sha256 is None:
        raise NoRequestError(
            f"Attempt {start.attempt or 1} of the run {run_id} had no request of ours: its start frame does not "
            "name a worker, a version and the hash of a request."
        )
    registered = await claims.registered_offers(connection, start.worker)
    if registered is None:
        raise NoRequestError(
            f"The worker {start.worker} that answered is no longer in the table workers "
            "(FRAMELEDGER_TIMEKEEPER_KEEP_WORKERS_DAYS), so its configuration is unknown."
        )
    config = start.metadata.get(CONFIG, registered)
    return RecordedRequest(
        start, config, await contexts.context(connection, context_id, start.context_version)
    )


def rebuild(recorded: RecordedRequest, create: Callable[[str], LLMService[Any]]) -> Request:
    """Returns the rebuilt request; `create` creates a service of a provider. Its hash may differ from the log's.

    Raises `ProviderError` if it can no longer be made, and `NoRequestError` if this release cannot read the recorded
    configuration.
    """
    try:
        model = create(recorded.config["provider"])
        apply_config(model, recorded.config)
    except (KeyError, TypeError, ValidationError) as error:
        raise NoRequestError(
            f"This release cannot read the configuration that worker {recorded.start.worker} recorded "
            f"({type(error).__name__}). Use the release that answered the run."
        ) from error
    request = request_of(model, recorded.stored, recorded.start.metadata.get(CANCEL_TOOLS, ()))
    if isinstance(request, ProviderError):
        raise request
    return request


async def _start(
    connection: Connection, context_id: str, run_id: str, attempt: int | None
) -> LLMFullResponseStartFrame:
    starts = [
        frame
        for payload in await history.starts_of_run(connection, context_id, run_id)
        if isinstance(frame := decode(payload), LLMFullResponseStartFrame)
    ]
    if not starts:
        raise NoRequestError(
            f"The context {context_id!r} has no run {run_id!r} that has started. `frameledger runs` lists its runs."
        )
    if attempt is None:
        return starts[-1]
    of_attempt = [start for start in starts if (start.attempt or 1) == attempt]
    if not of_attempt:
        numbers = ", ".join(str(start.attempt or 1) for start in starts)
        raise NoRequestError(f"The run {run_id} has no attempt {attempt}; it has {numbers}.")
    return of_attempt[-1]
