"""The provider `openai`: chat completions with the official SDK, at OpenAI or any compatible server."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import httpx
import openai

from frameledger_services.providers.openai_adapter import DeveloperRole, OpenAILLMAdapter
from frameledger_services.providers.openai_answer import OpenAIAnswer
from frameledger_services.providers.sdk import SdkLLMService
from frameledger_services.settings import Settings


class OpenAILLMService(SdkLLMService[OpenAILLMAdapter]):
    """OpenAI's chat completions, or a compatible server (vLLM, Ollama, llama.cpp, gateways).

    A refusal becomes text with the finish reason `content_filter`. Reasoning that a compatible server streams
    (`reasoning_content`, `reasoning`, or parts of type `thinking`) becomes thoughts that are on the log and not in the
    context, because chat completions cannot carry them. What a compatible server adds to its calls as `extra_content`,
    such as Gemini's thought signatures, is stored in the context and sent back with them.
    """

    provider = "openai"
    adapter_class: ClassVar[type[OpenAILLMAdapter]] = OpenAILLMAdapter
    default_model = "gpt-5.4-mini"

    sdk: ClassVar[Any] = openai
    client_class = openai.AsyncOpenAI
    api_url = "https://api.openai.com/v1"
    path = "/chat/completions"
    answer_class = OpenAIAnswer

    def __init__(self, *, developer_role: DeveloperRole = "developer", **options: Any) -> None:
        """`developer_role` says how developer messages are sent, for servers that do not support them: see the adapter.
        `options` are those of `SdkLLMService`."""
        super().__init__(**options)
        at_openai = httpx.URL(self._base_url).host.endswith("api.openai.com")
        self._adapter = type(self).adapter_class(developer_role, takes_max_tokens=not at_openai)

    @classmethod
    def configured(cls, settings: Settings, /, **options: Any) -> Self:
        return super().configured(settings, **{"developer_role": settings.openai_developer_role} | options)
