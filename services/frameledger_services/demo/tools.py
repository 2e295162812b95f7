"""The functions of the demo, a module like that of any application: `frameledger run functions --module
frameledger_services.demo.tools`.

The first three only read, so they are safe to retry. `hold_ferry` runs in the background, reports progress, and can be
cancelled. `order_breakfast` must not run twice: it writes an order and then takes so long that its worker can be killed
meanwhile. `keep_seat` waits for a person. `set_alarm` always fails.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from functools import cache
from typing import Any, Literal

from frameledger.frames import FunctionCallResultProperties
from frameledger_services.demo.harbour import FILE, Harbour
from frameledger_services.functions import FunctionCallParams, FunctionRegistry, tool_options
from frameledger_services.settings import Settings

FIRST_ANSWER_SECONDS = 1.0
LAST_ANSWER_SECONDS = 25.0
"""Duration of `hold_ferry`: longer than the passenger waits."""

PRINTER_SECONDS = 120.0
"""Duration of an order after it was written: long enough for the demo to kill the worker."""

registry = FunctionRegistry()


@cache
def harbour() -> Harbour:
    """Returns the database in the configured data directory."""
    return Harbour(Settings.from_env(look_for_running=False).data_dir / FILE)


@registry.register_direct_function
@tool_options(safe_to_retry=True, timeout_secs=10)
async def train_position() -> dict[str, Any]:
    """Where the train is, and how late."""
    return {"late_minutes": 25, "arrival": "06:31"}


@registry.register_direct_function
@tool_options(safe_to_retry=True, timeout_secs=10)
def next_ferries(harbour_name: Literal["Brindle", "Sandmouth"]) -> dict[str, Any]:
    """The ferries of the morning.

    Args:
        harbour_name: From where they leave.
    """
    return {"ferries": harbour().ferries(harbour_name)}


@registry.register_direct_function
@tool_options(safe_to_retry=True, timeout_secs=10)
def weather(harbour_name: Literal["Brindle", "Sandmouth"]) -> dict[str, Any] | None:
    """The weather in the morning.

    Args:
        harbour_name: Where.
    """
    return harbour().weather(harbour_name)


@registry.register_direct_function
@tool_options(cancel_on_interruption=False, cancellable_by_llm=True, timeout_secs=900)
async def hold_ferry(leaves: str, params: FunctionCallParams) -> dict[str, Any]:
    """Asks a captain to wait for a passenger. It takes a while, and reports in between.

    Args:
        leaves: When the ferry leaves, such as 06:40.
    """
    await asyncio.sleep(FIRST_ANSWER_SECONDS)
    asking = {"status": "the captain is being asked", "ferry": leaves}
    await params.result_callback(asking, properties=FunctionCallResultProperties(is_final=False))
    await asyncio.sleep(LAST_ANSWER_SECONDS)
    return {"status": "he waits for ten minutes", "ferry": leaves}


@registry.register_direct_function
async def order_breakfast(berth: int, at: str, params: FunctionCallParams) -> dict[str, Any]:
    """Orders breakfast.

    Args:
        berth: For whom.
        at: When, such as 07:00.
    """
    harbour().book(params.tool_call_id, params.call_attempt, "breakfast", berth, at)
    await asyncio.sleep(PRINTER_SECONDS)
    return {"status": "ordered", "at": at}


@registry.register_direct_function
def keep_seat(berth: int, params: FunctionCallParams) -> None:
    """Keeps a seat on the ferry's deck, which the purser confirms.

    Args:
        berth: For whom.
    """
    params.wait(for_="the purser", deadline=timedelta(minutes=10))


@registry.register_direct_function
async def set_alarm(berth: int, at: str) -> None:
    """Sets the alarm clock of a berth.

    Args:
        berth: Whose.
        at: When it rings.
    """
    raise ConnectionError(f"the alarm clock of berth {berth} does not answer")
