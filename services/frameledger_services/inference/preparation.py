"""The request of a run: made from the context at exactly its version, and rebuilt from the log later.

Everything that a request is made from is on the log, except for the configuration of the service, which is in its
worker's row (`service_config`). The start frame names the cancel tools that were offered, and the configuration if it
had changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from frameledger_services import logs
from frameledger_services.cancel_tools import cancelled_by
from frameledger_services.database_types import Connection
from frameledger_services.providers.errors import ProviderError
from frameledger_services.providers.instructions import Instructions
from frameledger_services.providers.request import Request
from frameledger_services.providers.service import LLMService
from frameledger_services.providers.settings import LLMSettings
from frameledger_services.store import contexts, offers
from frameledger_services.store.contexts import StoredContext

CANCEL_TOOLS = "cancel_tools"
"""In the metadata of a start frame: the functions whose cancel tools the request offers."""

CONFIG = "offer"
"""In the metadata of a start frame: the service's configuration, if it differs from the one in its worker's row. The
key is stored and never changes."""

_log = logs.get_logger("inference")


async def read(connection: Connection, context_id: str, version: int) -> tuple[StoredContext, Sequence[str]]:
    """Returns the context at this version, and the names of the functions whose calls the model may cancel."""
    stored = await contexts.context(connection, context_id, version)
    if not stored.context.tools:
        return stored, ()
    return stored, await offers.cancellable_functions(connection)


def request_of(
    model: LLMService[Any], stored: StoredContext, cancel_tools: Sequence[str]
) -> Request | ProviderError:
    """Returns the request, or the reason why it cannot be sent to this provider."""
    try:
        return model.request(
            stored.context,
            prompt_caching=stored.prompt_caching,
            cancel_tools=cancel_tools,
            answers=stored.answers,
        )
    except ProviderError as error:
        return error
    except Exception:
        # An adapter is a plug-in, and a context may contain anything: its bug fails this run and no other.
        _log.exception("run.adapter_failed", context_id=stored.context_id, version=stored.version)
        return ProviderError(
            "The provider's adapter failed on this context; the log of the worker has the error."
        )


def metadata_of(request: Request, config: Mapping[str, Any], registered: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what the start frame has to contain so that the request can be rebuilt: `config` is the service's current
    configuration, and `registered` the one in its worker's row."""
    metadata: dict[str, Any] = {}
    if request.builtin_tools:
        metadata[CANCEL_TOOLS] = sorted(cancelled_by(name) for name in request.builtin_tools)
    if config != registered:
        metadata[CONFIG] = config
    return metadata


def service_config(model: LLMService[Any]) -> dict[str, Any]:
    """Returns the configuration with which this service makes its requests, as JSON."""
    instructions = model.instructions
    return {
        "provider": model.provider,
        "settings": model.settings.model_dump(mode="json", exclude_none=True),
        "instructions": {
            "appended": list(instructions.appended),
            "turn_completion": instructions.turn_completion,
        },
        "adapter": model.get_llm_adapter().parameters(),
    }


def apply_config(model: LLMService[Any], config: Mapping[str, Any]) -> None:
    """Configure a service of the same provider with the result of `service_config`."""
    model.settings = LLMSettings(**config["settings"])
    model.write_with(model.get_llm_adapter().with_parameters(config["adapter"]))
    model.instructions = Instructions(
        appended=tuple(config["instructions"]["appended"]),
        turn_completion=config["instructions"]["turn_completion"],
    )
