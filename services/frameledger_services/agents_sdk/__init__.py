"""The OpenAI Agents SDK: a session of it is a conversation here, whose every version stays readable.

`FrameledgerSession` has the four methods of the SDK's `Session` protocol, and imports nothing of the SDK.
"""

from frameledger_services.agents_sdk.session import FrameledgerSession

__all__ = ["FrameledgerSession"]
