"""The adapters of the providers that come with this package, under Pipecat's name for their module."""

from frameledger_services.providers.anthropic_adapter import AnthropicLLMAdapter
from frameledger_services.providers.openai_adapter import OpenAILLMAdapter
from frameledger_services.providers.scripted import ScriptedLLMAdapter

__all__ = ["AnthropicLLMAdapter", "OpenAILLMAdapter", "ScriptedLLMAdapter"]
