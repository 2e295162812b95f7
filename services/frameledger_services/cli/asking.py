"""A question of a command to the database: over a connection that only reads, closed with the answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

from psycopg import AsyncConnection

from frameledger_services.client.connections import Connections
from frameledger_services.settings import Settings

_P = ParamSpec("_P")
_T = TypeVar("_T")


async def ask(
    settings: Settings,
    function: Callable[Concatenate[AsyncConnection[Any], _P], Awaitable[_T]],
    *arguments: _P.args,
    **options: _P.kwargs,
) -> _T:
    """What `function` reads. Raises `DatabaseError` and `SchemaError`, which `failures.said` has words for."""
    connections = Connections(settings)
    try:
        return await connections.read(function, *arguments, **options)
    finally:
        await connections.close()
