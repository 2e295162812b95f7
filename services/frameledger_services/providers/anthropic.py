"""The provider `anthropic`: the messages API by the official SDK."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from functools import partial
from typing import Any, Self

import httpx
from anthropic import (
    APIConnectionError,
    APIError,
    APIStatusError,
    AsyncAnthropic,
    AsyncStream,
    DefaultAsyncHttpxClient,
)

from frameledger.frames import AnyFrame
from frameledger_services.providers import http_errors
from frameledger_services.providers.anthropic_adapter import AnthropicLLMAdapter
from frameledger_services.providers.anthropic_answer import AnthropicAnswer
from frameledger_services.providers.errors import (
    ConnectionLostError,
    ProviderError,
    ProviderUnavailableError,
    UnmappableError,
)
from frameledger_services.providers.http_errors import MALFORMED
from frameledger_services.providers.keep_alive import read_to_the_end
from frameledger_services.providers.loose_json import an_object
from frameledger_services.providers.request import Request
from frameledger_services.providers.service import LLMService
from frameledger_services.settings import Settings

BASE_URL = "https://api.anthropic.com"
CONNECT_SECS = 10.0

SETTINGS = "FRAMELEDGER_ANTHROPIC_API_KEY, FRAMELEDGER_ANTHROPIC_BASE_URL and FRAMELEDGER_INFERENCE_MODEL"
"""By which the provider and our account with it are named."""


class AnthropicLLMService(LLMService[AnthropicLLMAdapter]):
    """Anthropic's messages.

    The SDK gets the body as bytes, so `Request.content` is what the server receives, and tries nothing twice: that is
    for whoever asks. Thoughts come with their signatures and are stored in the context, so that they go back byte for
    byte; one that only the provider can read has its whole block as signature. What the provider's own tools (searches,
    code) do inside an answer is not kept: the answer's text is.
    """

    provider = "anthropic"
    adapter_class = AnthropicLLMAdapter
    default_model = "claude-sonnet-4-6"

    def __init__(self, *, api_key: str | None = None, base_url: str | None = None, **options: Any) -> None:
        """Without a key none is sent that means anything; without an address Anthropic's."""
        super().__init__(**options)
        self._api_key = api_key
        self._base_url = base_url or BASE_URL
        self._client: AsyncAnthropic | None = None

    @classmethod
    def configured(cls, settings: Settings, /, **options: Any) -> Self:
        key = settings.anthropic_api_key
        known = {
            "api_key": None if key is None else key.get_secret_value(),
            "base_url": settings.anthropic_base_url,
        }
        return cls(**(known | options))

    @classmethod
    def missing(cls, settings: Settings) -> str | None:
        # A server at an address of its own may need none.
        needed = settings.anthropic_api_key is None and settings.anthropic_base_url is None
        return "ANTHROPIC_API_KEY" if needed else None

    async def _connect(self) -> None:
        self._connected()

    async def _disconnect(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    def _connected(self) -> AsyncAnthropic:
        if self._client is None:
            self._client = AsyncAnthropic(
                # The SDK would look into the environment, and into files, for what is not given.
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
        answer = AnthropicAnswer(self.provider, partial(self.announcement, request))
        try:
            stream = await self._connected().post(
                "/v1/messages",
                content=request.content,
                cast_to=object,  # the event's JSON as it is: see loose_json
                stream=True,
                stream_cls=AsyncStream[object],
            )
            async with stream:
                async for event in stream:
                    told = answer.read
                    frames = list(answer.take(an_object(event)))
                    if answer.read is not told and answer.read is not None:
                        await self.push_usage(answer.read)
                    for frame in frames or (None,):
                        yield frame
                    if answer.complete:
                        break
        except (APIError, httpx.TransportError, *MALFORMED) as error:
            # What breaks after the last word takes nothing away.
            if answer.stop_reason is None:
                raise await self._as_ours(error) from error
        for frame in answer.end():
            yield frame

    async def _as_ours(self, error: Exception) -> ProviderError:
        match error:
            case APIStatusError() if error.status_code < 400:
                # The response began well, and then an event told of an error.
                return http_errors.in_the_stream(
                    self.provider, words=_sentence(error), kinds=(error.type,), secret=self._api_key
                )
            case APIStatusError():
                return http_errors.of_status(
                    self.provider,
                    error.status_code,
                    words=_sentence(error),
                    headers=error.response.headers,
                    settings=SETTINGS,
                    kinds=(error.type,),
                    secret=self._api_key,
                )
            case APIConnectionError() | httpx.TransportError():
                sentence = f"The connection to {self.provider} was lost or could not be made."
                await self.notify("on_connection_error", sentence)
                return ConnectionLostError(sentence)
            case _:
                return ProviderUnavailableError(f"{self.provider} sent an event that cannot be read.")


def _sentence(error: APIStatusError) -> str:
    """The provider's own words, without the SDK's around them."""
    match error.body:
        case {"error": {"message": str(said)}}:
            return said
    return error.message
