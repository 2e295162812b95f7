"""Functions for models. Run them with `frameledger run functions --module my_tools` in this folder."""

from datetime import timedelta
from typing import Literal

from frameledger.frames import FunctionCallResultProperties
from frameledger_services.functions import FunctionCallParams, FunctionRegistry, tool_options

registry = FunctionRegistry()

# Every handler gets this object as `params.app_resources`, for example with database connections and clients.
app_resources = {"Oslo": 4, "Rome": 21}


@registry.register_direct_function
@tool_options(safe_to_retry=True, timeout_secs=10)
async def get_weather(
    city: str, params: FunctionCallParams, unit: Literal["celsius", "fahrenheit"] = "celsius"
) -> None:
    """The temperature in a city, now.

    Args:
        city: The city, by its English name.
        unit: In which unit.
    """
    celsius = params.app_resources.get(city)
    if celsius is None:
        await params.result_callback({"error": f"There is no weather for {city}."})
        return
    degrees = celsius if unit == "celsius" else celsius * 9 / 5 + 32
    await params.result_callback({"city": city, "degrees": degrees, "unit": unit})


@registry.register_direct_function
@tool_options(cancel_on_interruption=False, cancellable_by_llm=True)
async def search(text: str, params: FunctionCallParams) -> list[str]:
    """Searches the archive. It takes a while, and the conversation goes on meanwhile.

    Args:
        text: For what.
    """
    halfway = FunctionCallResultProperties(is_final=False, run_llm=False)
    await params.result_callback(f"Half of the archive has nothing about {text}.", properties=halfway)
    return [f"A page about {text}."]


@registry.register_direct_function
@tool_options(cancel_on_interruption=False)
def refund(order: str, cents: int, params: FunctionCallParams) -> None:
    """Asks a person to approve a refund. A plain function: it runs in a thread, and `await` is not needed.

    Args:
        order: The order's number.
        cents: How much.
    """
    # Ask the person here, with params.idempotency_key in the message, so that a retry does not ask twice.
    params.wait(for_=f"approval of {cents} cents for order {order}", deadline=timedelta(days=2))
