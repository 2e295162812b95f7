"""The provider `anthropic`: the messages API by the official SDK."""

from __future__ import annotations

from typing import Any, ClassVar

import anthropic

from frameledger_services.providers.anthropic_adapter import AnthropicLLMAdapter
from frameledger_services.providers.anthropic_answer import AnthropicAnswer
from frameledger_services.providers.sdk import SdkLLMService


class AnthropicLLMService(SdkLLMService[AnthropicLLMAdapter]):
    """Anthropic's messages.

    Thoughts come with their signatures and are stored in the context, so that they go back byte for byte; one that only
    the provider can read has its whole block as signature. What the provider's own tools (searches, code) do inside an
    answer is not kept: the answer's text is.
    """

    provider = "anthropic"
    adapter_class = AnthropicLLMAdapter
    default_model = "claude-sonnet-4-6"

    sdk: ClassVar[Any] = anthropic
    client_class = anthropic.AsyncAnthropic
    api_url = "https://api.anthropic.com"
    path = "/v1/messages"
    answer_class = AnthropicAnswer
