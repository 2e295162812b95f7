"""`SdkLLMService`: the base class of providers that use an official SDK. OpenAI's and Anthropic's are alike."""

from __future__ import annotations

import asyncio
import json
from abc import ABC
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from functools import cached_property, partial
from importlib import import_module
from typing import Any, ClassVar, Generic, Protocol, Self

import httpx

from frameledger.frames import AnyFrame, Usage
from frameledger_services.providers import http_errors, keep_alive, loose_json
from frameledger_services.providers.call_pieces import Announce
from frameledger_services.providers.errors import (
    ConnectionLostError,
    ProviderError,
    ProviderRefusedError,
    ProviderUnavailableError,
    UnmappableError,
)
from frameledger_services.providers.http_errors import MALFORMED
from frameledger_services.providers.loose_json import JsonObject, an_object
from frameledger_services.providers.request import Request
from frameledger_services.providers.service import LLMService, TAdapter
from frameledger_services.settings import PREFIX, Settings

CONNECT_SECONDS = 10.0

NO_KEY = "none"
"""Sent if there is no key: the SDKs require one, and local servers accept any."""

FINISHED_SECONDS = 5.0
"""Maximum seconds to wait for the next event, usage or the stream's end, once the finish reason has arrived. Less if
the completion timeout is short."""

_LONGEST_BODY = 2**16
"""Maximum bytes of a response without an event in which an error is searched."""

_NO_MORE = object()
"""Returned instead of an event."""


class StreamedAnswer(Protocol):
    """One answer while its events arrive."""

    def __init__(self, provider: str, announce: Announce) -> None:
        """`announce` makes the announcement of the answer's calls."""

    usage: Usage | None
    """Tokens used so far; another object whenever the provider reported them."""

    finish_reason: str | None
    """The API's word for why the model stopped; None before that. If the stream breaks or hangs after that, nothing of
    the answer is lost."""

    complete: bool
    """Whether the last event has arrived. Set from outside if the SDK does not return it."""

    def take(self, event: JsonObject, /) -> Iterable[AnyFrame]:
        """The frames of an event; often none."""

    def end(self) -> Iterable[AnyFrame]:
        """The frames that follow the stream's last event. Raises `ProviderError` for an incomplete answer."""


class SdkLLMService(LLMService[TAdapter], ABC, Generic[TAdapter]):
    """A provider with an SDK that Stainless generated: it has a client with `post`, and exceptions with fixed names.

    The SDK gets the body as bytes, so the server receives exactly `Request.content`. The SDK never retries: the caller
    decides about that. The key and the address come from the settings `PROVIDER_api_key` and `PROVIDER_base_url`, if
    the provider has them.
    """

    sdk: ClassVar[Any]
    """The SDK, with its exceptions and its stream."""

    client_class: ClassVar[Any]
    """Its asynchronous client."""

    api_url: ClassVar[str]
    """The provider's own address, used if `base_url` names no other."""

    path: ClassVar[str]
    """Where requests are posted, below the address."""

    answer_class: ClassVar[type[StreamedAnswer]]

    def __init__(self, *, api_key: str | None = None, base_url: str | None = None, **options: Any) -> None:
        """Without a key, a placeholder is sent, which local servers accept. `options` are those of `LLMService`."""
        super().__init__(**options)
        self._api_key = api_key
        self._base_url = base_url or self.api_url
        self._client: Any = None

    @classmethod
    def configured(cls, settings: Settings, /, **options: Any) -> Self:
        key = getattr(settings, f"{cls.provider}_api_key", None)
        known = {
            "api_key": None if key is None else key.get_secret_value(),
            "base_url": getattr(settings, f"{cls.provider}_base_url", None),
        }
        return cls(**(known | options))

    @cached_property
    def _http(self) -> Any:
        """Returns the HTTP library of this SDK: httpx, or from version 3 of OpenAI's and version 1 of Anthropic's SDK
        on its successor, which has other classes with the same names."""
        client: type = self.sdk.DefaultAsyncHttpxClient
        [library] = {
            one.__module__.partition(".")[0] for one in client.__mro__ if one.__name__ == "AsyncClient"
        }
        return import_module(library)

    @property
    def server_address(self) -> tuple[str, int] | None:
        url = httpx.URL(self._base_url)
        return url.host, url.port or (443 if url.scheme == "https" else 80)

    @classmethod
    def missing(cls, settings: Settings) -> str | None:
        # A server at an address of its own may need no key.
        known = settings.options_of(cls.provider)
        for name in ("api_key", "base_url"):
            if known.get(name) or getattr(settings, f"{cls.provider}_{name}", None) is not None:
                return None
        if f"{cls.provider}_api_key" in Settings.model_fields:
            return f"{cls.provider.upper()}_API_KEY"
        return f'{PREFIX}PROVIDER_OPTIONS={{"{cls.provider}": {{"api_key": "..."}}}}'

    def secrets(self) -> tuple[str, ...]:
        return (self._api_key,) if self._api_key else ()

    async def _connect(self) -> None:
        if self._client is None:
            self._client = self.client_class(
                # The SDK would read missing values from the environment and from files.
                api_key=self._api_key or NO_KEY,
                base_url=self._base_url,
                max_retries=0,
                # `LLMService.answer` limits how long the provider may be silent.
                timeout=self._http.Timeout(None, connect=CONNECT_SECONDS),
                http_client=self.sdk.DefaultAsyncHttpxClient(
                    event_hooks={"response": [keep_alive.reading_to_the_end(self._http)]}
                ),
            )

    async def _disconnect(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def _stream(self, request: Request) -> AsyncGenerator[AnyFrame | None, None]:
        if request.body.get("stream") is not True:
            raise UnmappableError(
                self.provider, "the field `stream` of `extra`, because answers are always streamed"
            )
        answer = self.answer_class(self.provider, partial(self.announcement, request))
        await self._connect()
        stream: Any = None
        body: _Body | None = None
        try:
            stream = await self._client.post(
                self.path,
                content=request.content,
                options={"headers": self._headers(request)},
                cast_to=object,  # the event's JSON as it is: see loose_json
                stream=True,
                stream_cls=self.sdk.AsyncStream[object],
            )
            body = _Body(stream.response)
            # How long the next event is waited for; the answer is over then, whether or not the stream ends.
            within: float | None = None
            async with stream:
                events = aiter(stream)
                while (event := await _next(events, within)) is not _NO_MORE:
                    body.beginning = None
                    event = an_object(event)
                    if event.get("object") == "error" and answer.finish_reason is None:
                        raise self._reported(event)
                    reported = answer.usage
                    frames = tuple(answer.take(event))
                    if answer.finish_reason is not None:
                        within = min(FINISHED_SECONDS, self.completion_timeout_secs / 2)
                    if (
                        answer.usage is not None
                        and answer.usage is not reported
                        and answer.finish_reason is None
                    ):
                        await self.push_usage(answer.usage)
                    for frame in frames or (None,):
                        yield frame
                    if answer.complete:
                        break
        except (self.sdk.APIError, self._http.RequestError, *MALFORMED) as error:
            if stream is None and isinstance(error, MALFORMED):
                raise  # not of the server, which has sent nothing yet
            if answer.finish_reason is None:
                raise await self._provider_error(error) from error
        if answer.usage is not None:
            # What follows may be an error instead of an end frame, or calls that are more than a run may make.
            await self.push_usage(answer.usage)
        if body is not None:
            if body.beginning:
                self._check_stream(stream.response, loose_json.read(bytes(body.beginning)))
            answer.complete = answer.complete or keep_alive.is_last(body.end)
        for frame in answer.end():
            yield frame

    def _headers(self, request: Request) -> Mapping[str, object]:
        """Returns the headers that this request needs besides those of the SDK, or instead of them."""
        return {}

    def _check_stream(self, response: Any, said: object) -> None:
        """Raise the error for a successful response without an event: the error in its body, or that it is not an event
        stream according to its header."""
        match said:
            case {"error": (dict() | str()) as error} if error:
                raise self._reported(an_object(said))
            case {"object": "error"}:
                raise self._reported(an_object(said))
        kind = response.headers.get("content-type") or "no content type"
        if "text/event-stream" not in kind:
            raise ProviderRefusedError(
                f"{self.provider} answered with {kind} instead of a stream of events. See {self._settings_to_check()}."
            )

    def _reported(self, said: JsonObject) -> ProviderError:
        """Returns the error that a successful response reports, as an object in it or in the form of error responses of
        vLLM and FastChat."""
        error = said.get("error") or said
        kinds = (error.get("code"), error.get("type")) if isinstance(error, dict) else ()
        return http_errors.in_the_stream(
            self.provider, message=_text_of(error) or "no reason", kinds=kinds, secret=self._api_key
        )

    def _settings_to_check(self) -> str:
        own = (f"{self.provider}_{name}" for name in ("api_key", "base_url"))
        named = [name.upper() for name in own if name in Settings.model_fields] or ["PROVIDER_OPTIONS"]
        return " and ".join([", ".join(PREFIX + name for name in named), f"{PREFIX}INFERENCE_MODEL"])

    async def _provider_error(self, error: Any) -> ProviderError:
        if isinstance(error.__cause__, (self._http.UnsupportedProtocol, self._http.LocalProtocolError)):
            # Nothing was sent. The SDK's own message may quote the key.
            return ProviderRefusedError(
                f"No request can be sent to {self.provider}: its address or its key is not valid. See "
                f"{self._settings_to_check()}."
            )
        if isinstance(error, (self.sdk.APIConnectionError, self._http.TransportError)):
            why = http_errors.why_not_connected(error)
            if any(isinstance(one, self._http.RemoteProtocolError) for one in (error, error.__cause__)):
                why = "the server closed it"
            sentence = f"The connection to {self.provider} was lost or could not be made{why and f': {why}'}."
            await self.notify("on_connection_error", sentence)
            return ConnectionLostError(sentence)
        if not isinstance(error, self.sdk.APIError):
            return ProviderUnavailableError(f"{self.provider} sent a malformed event.")
        kinds = tuple(getattr(error, name, None) for name in ("code", "type"))
        if isinstance(error, self.sdk.APIStatusError) and error.status_code >= 400:
            return http_errors.of_status(
                self.provider,
                error.status_code,
                message=_message(error),
                headers=error.response.headers,
                settings=self._settings_to_check(),
                kinds=kinds,
                secret=self._api_key,
                has_key=bool(self._api_key),
            )
        # The response began well, and then an event reported an error.
        return http_errors.in_the_stream(
            self.provider, message=_message(error), kinds=kinds, secret=self._api_key
        )


async def _next(events: AsyncIterator[object], within: float | None) -> object:
    """Returns the next event of a stream; `_NO_MORE` at its end, or if none arrives within this many seconds."""
    limit = asyncio.timeout(within)
    try:
        async with limit:
            return await anext(events, _NO_MORE)
    except TimeoutError:
        if not limit.expired():
            raise
        return _NO_MORE


def _message(error: Any) -> str:
    """Returns the provider's message, without what the SDK adds. If it has another form, such as FastAPI's list of
    validation errors, all of it is the message."""
    return _text_of(error.body) or (json.dumps(error.body) if error.body else str(error.message))


def _text_of(error: object) -> str:
    """Returns the text of an error as APIs write them; "" if it has none."""
    match error:
        case {"error": {"message": str(message)}} | {"message": str(message)}:
            return message
        case {"error": str(message)} | {"detail": str(message)} | str(message):
            return message
    return ""


class _Body:
    """The decompressed body of a response while it is read. Its header may be wrong about it."""

    def __init__(self, response: Any) -> None:
        self.beginning: bytearray | None = bytearray()
        """As far as an error is looked for in it; set to None once an event has come."""

        self.end = b""
        """The latest bytes that arrived."""

        self._read = response.aiter_bytes
        response.aiter_bytes = self._aiter_bytes

    async def _aiter_bytes(self) -> AsyncIterator[bytes]:
        async for part in self._read():
            if self.beginning is not None:
                self.beginning.extend(part[: _LONGEST_BODY - len(self.beginning)])
            self.end = (self.end + part)[-keep_alive.LOOKED_AT :]
            yield part
