"""The provider `openai`: chat completions by the official SDK, at any address that speaks as they do."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from functools import partial
from typing import Any, Self

import httpx
from openai import (
    APIConnectionError,
    APIError,
    APIStatusError,
    AsyncOpenAI,
    AsyncStream,
    DefaultAsyncHttpxClient,
)

from frameledger.frames import AnyFrame
from frameledger_services.providers import http_errors
from frameledger_services.providers.errors import (
    ConnectionLostError,
    ProviderError,
    ProviderUnavailableError,
    UnmappableError,
)
from frameledger_services.providers.http_errors import MALFORMED
from frameledger_services.providers.keep_alive import read_to_the_end
from frameledger_services.providers.loose_json import an_object, text
from frameledger_services.providers.openai_adapter import DeveloperRole, OpenAILLMAdapter
from frameledger_services.providers.openai_answer import OpenAIAnswer
from frameledger_services.providers.request import Request
from frameledger_services.providers.service import LLMService
from frameledger_services.settings import Settings

BASE_URL = "https://api.openai.com/v1"
CONNECT_SECS = 10.0

SETTINGS = "FRAMELEDGER_OPENAI_API_KEY, FRAMELEDGER_OPENAI_BASE_URL and FRAMELEDGER_INFERENCE_MODEL"
"""By which the provider and our account with it are named."""


class OpenAILLMService(LLMService[OpenAILLMAdapter]):
    """OpenAI's chat completions, or a server that speaks as they do (vLLM, Ollama, llama.cpp, gateways).

    The SDK gets the body as bytes, so `Request.content` is what the server receives, and tries nothing twice: that is
    for whoever asks. A refusal is text with the finish reason `content_filter`. Reasoning that a compatible server
    streams (`reasoning_content` or `reasoning`) comes as thoughts that are on the log and not in the context, since
    chat completions have no place for them.
    """

    provider = "openai"
    adapter_class = OpenAILLMAdapter
    default_model = "gpt-5.4-mini"

    def __init__(
        self,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        developer_role: DeveloperRole = "developer",
        **options: Any,
    ) -> None:
        """Without a key none is sent that means anything, which local servers accept; without an address OpenAI's.

        `developer_role` is for servers that know no developer messages: see the adapter.
        """
        super().__init__(**options)
        self._api_key = api_key
        self._base_url = base_url or BASE_URL
        itself = httpx.URL(self._base_url).host.endswith("api.openai.com")
        self._adapter = OpenAILLMAdapter(developer_role, takes_max_tokens=not itself)
        self._client: AsyncOpenAI | None = None

    @classmethod
    def configured(cls, settings: Settings, /, **options: Any) -> Self:
        key = settings.openai_api_key
        known: dict[str, Any] = {
            "api_key": None if key is None else key.get_secret_value(),
            "base_url": settings.openai_base_url,
            "developer_role": settings.openai_developer_role,
        }
        return cls(**(known | options))

    @classmethod
    def missing(cls, settings: Settings) -> str | None:
        # A server at an address of its own may need none.
        needed = settings.openai_api_key is None and settings.openai_base_url is None
        return "OPENAI_API_KEY" if needed else None

    async def _connect(self) -> None:
        self._connected()

    async def _disconnect(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    def _connected(self) -> AsyncOpenAI:
        if self._client is None:
            self._client = AsyncOpenAI(
                # The SDK would look into the environment for what is not given.
                api_key=self._api_key or "none",
                base_url=self._base_url,
                max_retries=0,
                # How long silence may last is the service's to say, for the whole answer.
                timeout=httpx.Timeout(None, connect=CONNECT_SECS),
                http_client=DefaultAsyncHttpxClient(event_hooks={"response": [read_to_the_end]}),
            )
        return self._client

    async def _stream(self, request: Request) -> AsyncGenerator[AnyFrame | None, None]:
        if request.body.get("stream") is not True:
            raise UnmappableError(self.provider, "the field stream of `extra`, since answers are streamed")
        answer = OpenAIAnswer(self.provider, partial(self.announcement, request))
        try:
            stream = await self._connected().post(
                "/chat/completions",
                content=request.content,
                cast_to=object,  # the event's JSON as it is: see loose_json
                stream=True,
                stream_cls=AsyncStream[object],
            )
            async with stream:
                async for chunk in stream:
                    frames = answer.take(an_object(chunk))
                    if answer.usage is not None and answer.finish_reason is None:
                        await self.push_usage(answer.usage)
                    for frame in frames or (None,):
                        yield frame
        except (APIError, httpx.TransportError, *MALFORMED) as error:
            # What breaks after the last word takes nothing away: only the usage may be missing.
            if answer.finish_reason is None:
                raise await self._as_ours(error) from error
        for frame in answer.end():
            yield frame

    async def _as_ours(self, error: Exception) -> ProviderError:
        match error:
            case APIStatusError():
                return http_errors.of_status(
                    self.provider,
                    error.status_code,
                    words=_sentence(error),
                    headers=error.response.headers,
                    settings=SETTINGS,
                    kinds=(error.code, error.type),
                    secret=self._api_key,
                )
            case APIConnectionError() | httpx.TransportError():
                sentence = f"The connection to {self.provider} was lost or could not be made."
                await self.notify("on_connection_error", sentence)
                return ConnectionLostError(sentence)
            case APIError():
                return http_errors.in_the_stream(
                    self.provider, words=error.message, kinds=(error.code, error.type), secret=self._api_key
                )
            case _:
                return ProviderUnavailableError(f"{self.provider} sent an event that cannot be read.")


def _sentence(error: APIStatusError) -> str:
    """The provider's own words, without the SDK's around them."""
    return text(an_object(error.body).get("message")) or error.message
