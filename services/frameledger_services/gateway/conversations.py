"""What the routes of one conversation share: their path, its versions, and the error if it is not there."""

from __future__ import annotations

from datetime import datetime

from frameledger_services.client import NoSuchContextError, NoSuchVersionError
from frameledger_services.gateway.dependencies import Dependencies
from frameledger_services.gateway.problems import ProblemError
from frameledger_services.store import erasures
from frameledger_services.store.context_json import ContextHead, WantedContext

PATH = "/v1/contexts/{context_id}"


async def head_of(
    dependencies: Dependencies, context_id: str, *, version: int | None = None, time: datetime | None = None
) -> ContextHead:
    """Returns the requested and the newest version of a conversation. Raises `NoSuchContextError`, `NoSuchVersionError`
    and the problem `erased`."""
    found = await dependencies.heads.read(WantedContext(context_id, version, time))
    if found is None:
        raise await missing(dependencies, context_id)
    check_version(context_id, found)
    return found


def check_version(context_id: str, found: ContextHead) -> None:
    """Raise `NoSuchVersionError` if the conversation does not have this version."""
    if not found.exists:
        raise NoSuchVersionError(context_id, found.version, found.newest, found.first)


async def missing(dependencies: Dependencies, context_id: str) -> Exception:
    """Returns the error for a conversation without a head: it was erased, or never existed."""
    receipt = await dependencies.database.read(erasures.newest_receipt, context_id)
    if receipt is None:
        return NoSuchContextError(context_id)
    return ProblemError(
        "erased",
        f"The conversation was erased at version {receipt.version}.",
        context_id=context_id,
        receipt={
            "erased_at": receipt.erased_at.isoformat(),
            "version": receipt.version,
            "frames": receipt.frame_count,
            "why": receipt.why,
            "requested_by": receipt.requested_by,
        },
    )
