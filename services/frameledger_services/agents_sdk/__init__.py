"""The bridge to the OpenAI Agents SDK: an SDK session is a conversation, and all its versions stay readable.

    session = FrameledgerSession("ticket-7", client)
    hooks = FrameledgerRunHooks("ticket-7", client)
    result = await Runner.run(agent, "Where is my order?", session=session, hooks=hooks)

`FrameledgerSession` implements the SDK's `Session` protocol without importing the SDK. `FrameledgerRunHooks` records
the models and tools that runs use; it needs the extra `agents`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from frameledger_services.agents_sdk.session import FrameledgerSession

if TYPE_CHECKING:
    from frameledger_services.agents_sdk.run_hooks import FrameledgerRunHooks

__all__ = ["FrameledgerRunHooks", "FrameledgerSession"]

if not TYPE_CHECKING:  # type checkers accept any name of a module with `__getattr__`

    def __getattr__(name: str) -> Any:
        # Imported on first use: the session works without the SDK.
        if name != "FrameledgerRunHooks":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return import_module("frameledger_services.agents_sdk.run_hooks").FrameledgerRunHooks
