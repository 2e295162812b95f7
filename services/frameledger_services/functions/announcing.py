"""Announces calls that an application runs itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID

from frameledger.errors import RefusedError
from frameledger.frames import FunctionCallsStartedFrame
from frameledger.ids import ContextId, Version
from frameledger_services import logs, work
from frameledger_services.functions.call_frames import CallAttempt
from frameledger_services.functions.call_state import RETRY_SECONDS
from frameledger_services.functions.call_status import FOLDED_SECONDS, CallStatusReader
from frameledger_services.store.connections import DatabaseError

OPEN_ALREADY = "call_open_already"
"""The reason for a call whose id another open call of the conversation has."""

T = TypeVar("T")

_log = logs.get_logger("functions")


class CallsRefusedError(RefusedError, RuntimeError):
    """A conversation did not accept calls that an application announced. They did not run.

    `reason` is the reason on the stored frame (`call_open_already`, `too_many_rounds`), and `tool_call_ids` are the
    calls.

    Remedy: For `call_open_already` give the calls other ids. Otherwise wait for an input, or raise the limit.
    """

    def __init__(self, context_id: str, reason: str, tool_call_ids: Sequence[str]) -> None:
        super().__init__(
            f"The conversation {context_id} did not accept the calls {', '.join(tool_call_ids)}: {reason}."
        )
        self.reason = reason
        self.tool_call_ids = tuple(tool_call_ids)


@dataclass(frozen=True, slots=True)
class Announced:
    """The outcome of an announcement."""

    calls: list[CallAttempt]
    refused: list[str]
    """The ids of calls that were skipped because they are already open."""


async def announce(
    statuses: CallStatusReader,
    session: work.Session,
    context_id: str,
    announcement: FunctionCallsStartedFrame,
    causation_id: UUID | str | None,
) -> Announced:
    """Publish an announcement. Returns its outcome. Raises `CallsRefusedError` if it was ignored as a whole,
    TimeoutError if it is not folded in time, and `LeaseLostError`."""
    frame_id = str(announcement.id)
    async with asyncio.timeout(FOLDED_SECONDS), statuses.folding(context_id, frame_id) as folded:
        await session.publisher.publish(context_id, announcement, causation_id=causation_id)
        current = await folded
        if current.outcome != "applied":
            ids = [one.tool_call_id for one in announcement.function_calls]
            raise CallsRefusedError(context_id, current.reason or str(current.outcome), ids)
    # Outside the time limit for folding: the calls are announced, and only this process runs them.
    calls = _calls(session, context_id, announcement, Version(current.version or 0))
    snapshots = await read_while_leased(session, lambda: statuses.read_all(calls), calls=len(calls))
    open_calls, refused = list[CallAttempt](), list[str]()
    for call, stored in zip(calls, snapshots, strict=True):
        if stored.status is None:
            refused.append(call.tool_call_id)
        else:
            open_calls.append(call)
    return Announced(open_calls, refused)


def _calls(
    session: work.Session, context_id: str, announcement: FunctionCallsStartedFrame, version: Version
) -> list[CallAttempt]:
    frame_id = str(announcement.id)
    return [
        CallAttempt(
            scope=f"{frame_id}:{ordinal}",
            context_id=ContextId(context_id),
            requested_version=version,
            ordinal=ordinal,
            tool_call_id=one.tool_call_id,
            function_name=one.function_name,
            arguments=one.arguments,
            group_id=announcement.group_id,
            attempt=None,
            worker_id=session.worker_id,
            builtin=one.builtin,
            dispatched_by=UUID(frame_id),
        )
        for ordinal, one in enumerate(announcement.function_calls)
    ]


async def read_while_leased(session: work.Session, read: Callable[[], Awaitable[T]], **about: Any) -> T:
    """Returns the result of `read`, and waits while the database is unavailable: an error would stop the other calls.
    Raises `LeaseLostError`."""
    while session.lease.valid():
        try:
            return await read()
        except DatabaseError as error:
            _log.warning("call.status_unreadable", **about, error=str(error))
        await asyncio.sleep(RETRY_SECONDS)
    raise work.LeaseLostError
