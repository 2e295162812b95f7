"""The provider `anthropic`: the Messages API with the official SDK."""

from __future__ import annotations

from typing import Any, ClassVar

import anthropic

from frameledger_services.providers.anthropic_adapter import AnthropicLLMAdapter
from frameledger_services.providers.anthropic_answer import AnthropicAnswer
from frameledger_services.providers.sdk import SdkLLMService


class AnthropicLLMService(SdkLLMService[AnthropicLLMAdapter]):
    """Anthropic's Messages API.

    Thoughts are stored in the context with their signatures and sent back byte for byte. The signature of a redacted
    thought is its whole block. The steps of the provider's own tools (search, code execution) inside an answer are not
    stored; the text of the answer is.
    """

    provider = "anthropic"
    adapter_class = AnthropicLLMAdapter
    default_model = "claude-sonnet-4-6"

    sdk: ClassVar[Any] = anthropic
    client_class = anthropic.AsyncAnthropic
    api_url = "https://api.anthropic.com"
    path = "/v1/messages"
    answer_class = AnthropicAnswer
