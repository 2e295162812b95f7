"""The functions that the bench calls: two that return at once, and a slow one."""

from __future__ import annotations

import asyncio

from frameledger_services.functions import FunctionCallParams, FunctionRegistry, tool_options

SLOW_SECONDS = 10.0
"""Long enough that all calls of a crowd are under way at once, also on a slow machine."""

registry = FunctionRegistry()


@registry.register_direct_function
@tool_options(safe_to_retry=True)
async def safe(params: FunctionCallParams) -> None:
    """Returns at once, and is safe to retry."""
    await params.result_callback("done")


@registry.register_direct_function
async def unsafe(params: FunctionCallParams) -> None:
    """Returns at once, and is started at most once."""
    await params.result_callback("done")


@registry.register_direct_function
@tool_options(safe_to_retry=True, timeout_secs=600)
async def slow(params: FunctionCallParams) -> None:
    """Returns after `SLOW_SECONDS`."""
    await asyncio.sleep(SLOW_SECONDS)
    await params.result_callback("done")
