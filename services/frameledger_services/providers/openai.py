"""The provider `openai`: chat completions with the official SDK, at OpenAI or any compatible server."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import httpx
import openai

from frameledger_services.providers.openai_adapter import DeveloperRole, OpenAILLMAdapter
from frameledger_services.providers.openai_answer import OpenAIAnswer
from frameledger_services.providers.sdk import SdkLLMService
from frameledger_services.settings import Settings

_OPENAI = ("api.openai.com",)
_AZURE = ("openai.azure.com", "services.ai.azure.com")
_MISTRAL = ("mistral.ai",)


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
        **options: Any,
    ) -> None:
        """The arguments say which requests the server accepts; the adapter describes each. None stands for the default
        of the host. Only OpenAI and Azure know the role `developer`, refuse `max_tokens`, refuse functions to a model
        that reasons, and need neither a first message of the user nor plain text. They and Mistral accept consecutive
        messages of one role. OpenAI and Mistral accept no extra fields, and Mistral needs short ids of calls, fields of
        its own and a strict order of messages. `options` are those of `SdkLLMService`."""
        super().__init__(**options)
        host = httpx.URL(self._base_url).host
        is_openai, is_mistral = _is_of(host, *_OPENAI, *_AZURE), _is_of(host, *_MISTRAL)
        self._adapter = type(self).adapter_class(
            developer_role or ("developer" if is_openai else "user"),
            takes_max_tokens=_or(takes_max_tokens, not is_openai),
            takes_extra_fields=_or(takes_extra_fields, not _is_of(host, *_OPENAI, *_MISTRAL)),
            short_call_ids=_or(short_call_ids, is_mistral),
            reasons_with_functions=_or(reasons_with_functions, not is_openai),
            user_first=_or(user_first, not is_openai),
            plain_text=_or(plain_text, not is_openai),
            mistral_fields=_or(mistral_fields, is_mistral),
            strict_order=_or(strict_order, is_mistral),
            alternating=_or(alternating, not (is_openai or is_mistral)),
        )

    @classmethod
    def configured(cls, settings: Settings, /, **options: Any) -> Self:
        return super().configured(settings, **{"developer_role": settings.openai_developer_role} | options)


def _is_of(host: str, *domains: str) -> bool:
    return any(host == domain or host.endswith(f".{domain}") for domain in domains)


def _or(option: bool | None, default: bool) -> bool:
    return default if option is None else option
