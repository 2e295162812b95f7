"""The OpenAI Agents SDK: a session of it is a conversation here, whose every version stays readable.

    session = FrameledgerSession("ticket-7", client)
    hooks = FrameledgerRunHooks("ticket-7", client)
    result = await Runner.run(agent, "Where is my order?", session=session, hooks=hooks)

`FrameledgerSession` has the four methods of the SDK's `Session` protocol, and imports nothing of the SDK.
`FrameledgerRunHooks` tells which models and tools were used, and needs the extra `agents`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from frameledger_services.agents_sdk.session import FrameledgerSession

if TYPE_CHECKING:
    from frameledger_services.agents_sdk.run_hooks import FrameledgerRunHooks

__all__ = ["FrameledgerRunHooks", "FrameledgerSession"]

if not TYPE_CHECKING:  # a module with `__getattr__` has every name there is, for a type checker

    def __getattr__(name: str) -> Any:
        # Imported when used: the session works without the SDK.
        if name != "FrameledgerRunHooks":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return import_module("frameledger_services.agents_sdk.run_hooks").FrameledgerRunHooks
