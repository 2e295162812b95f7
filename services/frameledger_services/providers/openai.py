"""The provider `openai`: chat completions with the official SDK, at OpenAI or any compatible server."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, ClassVar, Self

import httpx
import openai

from frameledger_services.providers.openai_adapter import OpenAILLMAdapter
from frameledger_services.providers.openai_answer import OpenAIAnswer
from frameledger_services.providers.openai_dialect import DeveloperRole, Dialect
from frameledger_services.providers.sdk import SdkLLMService
from frameledger_services.settings import Settings


class OpenAILLMService(SdkLLMService[OpenAILLMAdapter]):
    """OpenAI's chat completions, or a compatible server (vLLM, Ollama, llama.cpp, gateways).

    A refusal becomes text with the finish reason `content_filter`. Reasoning that a compatible server streams as text
    (`reasoning_content`, `reasoning`) becomes thoughts, which are stored in the context and, if functions are called,
    sent back in the field that they came in. The same holds for OpenRouter's `reasoning_details`; parts of type
    `thinking` become thoughts that are only on the log. What a compatible server adds to its calls as `extra_content`,
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

    def __init__(
        self,
        *,
        developer_role: DeveloperRole | None = None,
        takes_max_tokens: bool | None = None,
        takes_extra_fields: bool | None = None,
        short_call_ids: bool | None = None,
        reasons_with_functions: bool | None = None,
        user_first: bool | None = None,
        plain_text: bool | None = None,
        mistral_fields: bool | None = None,
        strict_order: bool | None = None,
        alternating: bool | None = None,
        null_content: bool | None = None,
        **options: Any,
    ) -> None:
        """The arguments say which requests the server accepts (`Dialect`). None stands for the default of the host.
        `options` are those of `SdkLLMService`."""
        super().__init__(**options)
        given = {
            "developer_role": developer_role or None,
            "takes_max_tokens": takes_max_tokens,
            "takes_extra_fields": takes_extra_fields,
            "short_call_ids": short_call_ids,
            "reasons_with_functions": reasons_with_functions,
            "user_first": user_first,
            "plain_text": plain_text,
            "mistral_fields": mistral_fields,
            "strict_order": strict_order,
            "alternating": alternating,
            "null_content": null_content,
        }
        known = asdict(Dialect.of_host(httpx.URL(self._base_url).host))
        chosen = {name: value for name, value in given.items() if value is not None}
        self._adapter = type(self).adapter_class(**known | chosen)

    @classmethod
    def configured(cls, settings: Settings, /, **options: Any) -> Self:
        return super().configured(settings, **{"developer_role": settings.openai_developer_role} | options)
