"""The request of a run: made of the context at exactly its version, and made again from the log later.

All that a request is made of is on the log, except for how the service was configured, which is in its worker's row
(`service_config`). The start frame names the cancel tools that were offered, and the configuration if it had changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from psycopg import AsyncConnection

from frameledger_services import logs
from frameledger_services.cancel_tools import cancelled_by
from frameledger_services.providers.errors import ProviderError
from frameledger_services.providers.instructions import Instructions
from frameledger_services.providers.request import Request
from frameledger_services.providers.service import LLMService
from frameledger_services.providers.settings import LLMSettings
from frameledger_services.store import contexts, offers
from frameledger_services.store.contexts import StoredContext

CANCEL_TOOLS = "cancel_tools"
"""In the metadata of a start frame: the functions whose cancel tools the request offers."""

OFFER = "offer"
"""In the metadata of a start frame: how the service was set up, if not as its worker's row says."""

_log = logs.get_logger("inference")


async def read(
    connection: AsyncConnection[Any], context_id: str, version: int
) -> tuple[StoredContext, Sequence[str]]:
    """The context at this version, and the names of the functions whose calls the model may cancel."""
    stored = await contexts.context(connection, context_id, version)
    if not stored.context.tools:
        return stored, ()
    return stored, await offers.cancellable_functions(connection)


def request_of(
    model: LLMService[Any], stored: StoredContext, cancel_tools: Sequence[str]
) -> Request | ProviderError:
    """The request, or why this provider cannot be asked it."""
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
        # An adapter is a plug-in, and a context may hold anything: it costs this run, and not the others.
        _log.exception("run.adapter_failed", context_id=stored.context_id, version=stored.version)
        return ProviderError("The provider's adapter failed on this context; our log says how.")


def metadata_of(request: Request, offer: Mapping[str, Any], offered: Mapping[str, Any]) -> dict[str, Any]:
    """What the start frame has to say of the request so that it can be made again: `offer` is how the service is set up
    now, and `offered` what its worker's row says of that."""
    metadata: dict[str, Any] = {}
    if request.builtin_tools:
        metadata[CANCEL_TOOLS] = sorted(cancelled_by(name) for name in request.builtin_tools)
    if offer != offered:
        metadata[OFFER] = offer
    return metadata


def service_config(model: LLMService[Any]) -> dict[str, Any]:
    """How this service makes its requests, as JSON."""
    instructions = model.instructions
    return {
        "provider": model.provider,
        "settings": model.settings.model_dump(mode="json", exclude_none=True),
        "instructions": {
            "appended": list(instructions.appended),
            "turn_completion": instructions.turn_completion,
        },
        "adapter": model.get_llm_adapter().terms(),
    }


def apply_config(model: LLMService[Any], offer: Mapping[str, Any]) -> None:
    """Set a service of the same provider up as the one was that offered this."""
    model.settings = LLMSettings(**offer["settings"])
    model.write_with(model.get_llm_adapter().with_terms(offer["adapter"]))
    model.instructions = Instructions(
        appended=tuple(offer["instructions"]["appended"]),
        turn_completion=offer["instructions"]["turn_completion"],
    )
