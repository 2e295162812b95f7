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
    """Answers at once, and may be run again."""
    await params.result_callback("done")


@registry.register_direct_function
async def unsafe(params: FunctionCallParams) -> None:
    """Answers at once, and is run once at most."""
    await params.result_callback("done")


@registry.register_direct_function
@tool_options(safe_to_retry=True, timeout_secs=600)
async def slow(params: FunctionCallParams) -> None:
    """Takes its time."""
    await asyncio.sleep(SLOW_SECONDS)
    await params.result_callback("done")
