"""`on_function_calls_started` for calls that a model's run announced: told where they are run, once for each
announcement and process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import structlog
from psycopg import AsyncConnection

from frameledger.frames import FunctionCallFromLLM
from frameledger_services.functions.call_frames import Call
from frameledger_services.store.connections import Connections, DatabaseError
from frameledger_services.store.contexts import loads

REMEMBERED = 1_000
"""Announcements that this process was told of, the newest. The calls of one come within moments, unless they queue."""

_log = structlog.get_logger("functions")


class Announced:
    """The announcements of which this process has run a call."""

    def __init__(
        self,
        reading: Connections,
        serves: Callable[[str, str], bool],
        listened_to: Callable[[], bool],
        tell: Callable[[Sequence[FunctionCallFromLLM]], Awaitable[None]],
    ) -> None:
        """`serves` says whether a function, of a context, is run here. Without somebody who listens nothing is read."""
        self._reading = reading
        self._serves = serves
        self._listened_to = listened_to
        self._tell = tell
        self._told: dict[tuple[str, int], None] = {}

    async def begins(self, call: Call) -> None:
        """A call is about to begin: tell of all calls of its announcement that are run here, if it is the first."""
        announcement = (call.context_id, call.requested_version)
        if call.builtin or announcement in self._told or not self._listened_to():
            return
        self._told[announcement] = None
        if len(self._told) > REMEMBERED:
            del self._told[next(iter(self._told))]
        calls = [call.from_llm]
        try:
            calls = await self._reading.read(_announced_together, *announcement)
        except DatabaseError as error:
            # A hook may be lost; then it is told of the one call that is known.
            _log.warning("cannot read what was announced together", **call.names(), error=str(error))
        if here := [one for one in calls if self._serves(one.function_name, call.context_id)]:
            await self._tell(here)


async def _announced_together(
    connection: AsyncConnection[Any], context_id: str, version: int
) -> list[FunctionCallFromLLM]:
    cursor = await connection.execute(
        """
        SELECT function_name, tool_call_id, arguments::text
        FROM tool_calls
        WHERE context_id = %s AND requested_version = %s AND NOT builtin
        ORDER BY ordinal
        """,
        (context_id, version),
    )
    return [
        FunctionCallFromLLM(function_name=name, tool_call_id=tool_call_id, arguments=loads(arguments))
        for name, tool_call_id, arguments in await cursor.fetchall()
    ]
