"""The provider `anthropic`: the Messages API with the official SDK."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import anthropic
import httpx

from frameledger_services.providers.anthropic_adapter import BINDING, AnthropicLLMAdapter
from frameledger_services.providers.anthropic_answer import AnthropicAnswer
from frameledger_services.providers.loose_json import an_object
from frameledger_services.providers.request import Request
from frameledger_services.providers.sdk import NO_KEY, SdkLLMService

_API_VERSION = "2023-06-01"
"""The API version of the requests. Later versions refuse some of them, such as those with a temperature, and the SDK
names another version from its version 2 on."""

_BINDING_BETA = "thinking-binding-controls-2026-08-01"
_FILES_BETA = "files-api-2025-04-14"


class AnthropicLLMService(SdkLLMService[AnthropicLLMAdapter]):
    """Anthropic's Messages API.

    Thoughts are stored in the context with their signatures and sent back byte for byte. The signature of a redacted
    thought is its whole block. The steps of the provider's own tools (search, code execution) inside an answer are not
    stored; the text of the answer is. Thoughts after text or such steps of the same answer are only on the log.
    Compatible servers, such as MiMo's, may not sign thoughts, but need them back.
    """

    provider = "anthropic"
    adapter_class: ClassVar[type[AnthropicLLMAdapter]] = AnthropicLLMAdapter
    default_model = "claude-sonnet-4-6"

    sdk: ClassVar[Any] = anthropic
    client_class = anthropic.AsyncAnthropic
    api_url = "https://api.anthropic.com"
    path = "/v1/messages"
    answer_class = AnthropicAnswer

    def __init__(self, *, unsigned_thoughts: bool | None = None, **options: Any) -> None:
        """`unsigned_thoughts` says whether thoughts without a signature are returned to the server. None is the default
        for the host: only Anthropic refuses them. `options` are those of `SdkLLMService`."""
        super().__init__(**options)
        is_anthropic = httpx.URL(self._base_url).host == httpx.URL(self.api_url).host
        self._adapter = type(self).adapter_class(
            unsigned_thoughts=not is_anthropic if unsigned_thoughts is None else unsigned_thoughts
        )

    def _headers(self, request: Request) -> Mapping[str, object]:
        betas = []
        if BINDING in an_object(request.body.get("thinking")):
            betas.append(_BINDING_BETA)
        # In a source. If it is something else, such as an argument of a call, the header does no harm.
        if b'"file_id":' in request.content:
            betas.append(_FILES_BETA)
        headers = {
            "anthropic-version": _API_VERSION,
            # From its version 2 on, the SDK sends the key as a bearer token, which some compatible servers reject.
            # Early versions also send ANTHROPIC_AUTH_TOKEN of the environment as one.
            "X-Api-Key": self._api_key or NO_KEY,
            "Authorization": anthropic.Omit(),
        }
        return headers | ({"anthropic-beta": ",".join(betas)} if betas else {})
