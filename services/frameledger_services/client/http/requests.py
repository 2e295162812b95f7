"""Requests to a gateway, retried while it is unavailable. Every request of the client may be repeated."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote
from urllib.request import getproxies, proxy_bypass

import aiohttp
from yarl import URL

from frameledger_services.client.errors import GatewayAnswerError, GatewayUnavailableError
from frameledger_services.client.http import answers, events
from frameledger_services.client.http.answers import Answer
from frameledger_services.client.http.problems import error_of, problem_of
from frameledger_services.settings import SettingsError
from frameledger_services.supervision import Backoff
from frameledger_services.this_machine import is_this_machine
from frameledger_services.url_masking import without_credentials

CONNECT_SECONDS = 10.0

ANSWER_SECONDS = 15.0
"""A request without a response for this time, plus the time that it asks the gateway to wait, is repeated."""

SILENT_SECONDS = 40.0
"""A stream that is silent for this time is dead: a gateway sends a heartbeat every 15 seconds."""

IDLE_SECONDS = 30.0
"""How long an idle connection is kept: shorter than a gateway and most proxies in front of one keep it, because they
might close it while a request is on its way."""

MAX_HEADER_BYTES = 64 * 1024
"""A response to an append names frames in `Location`."""


class Requests:
    """Requests about conversations to one gateway."""

    def __init__(self, url: str, token: str | None) -> None:
        """Does not connect yet. Raises `SettingsError` for an invalid address or token."""
        try:
            address = URL(url)
            # Labels that are empty or too long would only be found when the name is resolved.
            (address.host or "").encode("idna")
            if not address.host:
                raise ValueError("it has no host")
        except ValueError as error:
            shown = without_credentials(url)
            raise SettingsError([f"{shown!r} is not the address of a gateway: {error}"]) from error
        self._address = str(address).rstrip("/")
        self.url = without_credentials(self._address)
        """The address for display: it appears in errors, which applications log."""

        if token and not token.isascii():
            raise SettingsError(["A token is ASCII; FRAMELEDGER_TOKEN is not."])
        self._headers = {"Authorization": f"Bearer {token.strip()}"} if token else {}
        self._session: aiohttp.ClientSession | None = None
        self._is_closed = False
        self._responses: set[aiohttp.ClientResponse] = set()
        """Responses whose bodies are being read."""

    async def close(self) -> None:
        """Close all connections. Closing twice does nothing. A request without a response gets none."""
        self._is_closed = True
        for response in self._responses:
            # aiohttp closes the connection but leaves its readers waiting.
            response.content.set_exception(aiohttp.ClientConnectionError("The client was closed."))
        if self._session is not None:
            await self._session.close()

    async def send(
        self,
        method: str,
        context_id: str | None,
        path: str = "",
        *,
        deadline: float,
        may_overrun: bool = False,
        wait_seconds: float = 0.0,
        published: set[str] | None = None,
        content: bytes | None = None,
        **request: Any,
    ) -> Answer:
        """Returns the response. Retries while the gateway is unavailable, and ends at the `deadline`, a time of the
        event loop. A response that `may_overrun` the deadline may take longer as long as it arrives steadily.

        `wait_seconds` is how long the request asks the gateway to wait. Adds the ids of frames that the gateway reports
        as published to `published`. Raises what `error_of` returns.
        """
        backoff = Backoff()
        failure: GatewayUnavailableError | None = None
        while True:
            # As a file, because aiohttp warns about values of more than a megabyte.
            body = None if content is None else io.BytesIO(content)
            try:
                async with (
                    asyncio.timeout_at(None if may_overrun else deadline),
                    self._request(
                        method, context_id, path, silent=ANSWER_SECONDS + wait_seconds, data=body, **request
                    ) as response,
                ):
                    answer = await _answer(response)
            except aiohttp.ClientError as error:
                failure = self._no_response_error(error)
            except TimeoutError as error:
                # The earlier error says more.
                raise failure or self._no_response_error(error) from error
            else:
                if answer.is_success:
                    return answer
                refusal = error_of(answer, self.url, context_id)
                if not isinstance(refusal, GatewayUnavailableError):
                    raise refusal
                failure = refusal
                if published is not None:
                    with answers.reading():
                        published.update(problem_of(answer).get("published") or ())
            pause = max(backoff.next(), failure.retry_after)
            if asyncio.get_running_loop().time() + pause >= deadline:
                raise failure
            await asyncio.sleep(pause)

    @asynccontextmanager
    async def stream(
        self, context_id: str, path: str, params: Mapping[str, Any], accept: str
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Yields the lines of a response as they arrive, without line ends. Does not retry.

        Raises what `error_of` returns, also for a response of another media type than `accept`, and
        `GatewayUnavailableError` also if the response breaks off.
        """
        try:
            async with self._request(
                "GET", context_id, path, silent=SILENT_SECONDS, params=params, headers={"Accept": accept}
            ) as response:
                if response.status // 100 != 2:
                    raise error_of(await _answer(response), self.url, context_id)
                if response.content_type != accept:
                    # For example a page, which many servers return for any path: it may have no line, or no end.
                    other = Answer(str(response.url), response.status, response.headers, b"")
                    raise error_of(other, self.url, context_id)
                yield events.lines_of(response.content.iter_any())
        except aiohttp.ClientError as error:
            raise self._no_response_error(error) from error

    def address(self, context_id: str | None, path: str) -> str:
        """Returns the URL of a resource of a conversation; with None, of one outside conversations."""
        if context_id is None:
            return f"{self._address}/v1{path}"
        # A segment of only dots would be a relative path.
        segment = quote(context_id, safe="").replace(".", "%2E")
        return f"{self._address}/v1/contexts/{segment}{path}"

    @asynccontextmanager
    async def _request(
        self, method: str, context_id: str | None, path: str, *, silent: float, **request: Any
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Yields a response with an unread body. Raises `aiohttp.ClientError`, also if nothing arrives for `silent`
        seconds, `GatewayUnavailableError` if the connections were closed, and ValueError for an impossible request."""
        if self._is_closed:
            # aiohttp's own error is a RuntimeError, which does not carry the frames of a request.
            raise self._closed()
        if self._session is None:
            self._session = _session(self._address, self._headers)
        async with self._session.request(
            method,
            URL(self.address(context_id, path), encoded=True),
            timeout=aiohttp.ClientTimeout(
                connect=CONNECT_SECONDS, sock_connect=CONNECT_SECONDS, sock_read=silent
            ),
            allow_redirects=False,
            **request,
        ) as response:
            self._responses.add(response)
            try:
                yield response
            finally:
                self._responses.discard(response)

    def _closed(self) -> GatewayUnavailableError:
        return GatewayUnavailableError(f"The client was closed before {self.url} had answered.")

    def _no_response_error(self, error: Exception) -> GatewayUnavailableError:
        # If the client was closed, what broke off is our own connection.
        unavailable = self._closed() if self._is_closed else GatewayUnavailableError(self._reason(error))
        unavailable.__cause__ = error
        return unavailable

    def _reason(self, error: Exception) -> str:
        """Returns why there is no answer, and the remedy. Raises the error to report if no gateway can be asked so."""
        # Before ValueError, which is its base class.
        if isinstance(error, aiohttp.ClientConnectorCertificateError):
            refused = error.certificate_error
            why = getattr(refused, "verify_message", "") or refused
            raise GatewayAnswerError(
                f"The certificate of {self.url} is not trusted: {why}. If its authority is one of your own, set "
                "SSL_CERT_FILE to the file of its certificate."
            ) from error
        if isinstance(error, ValueError):
            raise ValueError(f"This request cannot be sent to {self.url}: {error}") from error
        if isinstance(error, aiohttp.SocketTimeoutError):
            return (
                f"The gateway {self.url} accepts connections and has not answered in time. It may be waiting for Kafka "
                "or PostgreSQL: see its log, or run `frameledger doctor` where it runs."
            )
        # aiohttp names the certificates that it checks, also without TLS.
        reason = str(error).replace(" ssl:default", "") or (
            "no answer in time" if isinstance(error, TimeoutError) else type(error).__name__
        )
        by_proxy = isinstance(error, aiohttp.ClientProxyConnectionError | aiohttp.ClientHttpProxyError)
        through = " through the proxy of the environment (HTTP_PROXY, NO_PROXY)" if by_proxy else ""
        return (
            f"The gateway {self.url} does not answer{through}: {reason.rstrip('.')}. Check that it runs, and that this "
            "is its address."
        )


def _session(url: str, headers: Mapping[str, str]) -> aiohttp.ClientSession:
    """Returns connections to one gateway. Needs a running event loop."""
    proxy = _proxy(URL(url))
    return aiohttp.ClientSession(
        # No limit: a caller may follow any number of streams.
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_SECONDS),
        headers=headers,
        cookie_jar=aiohttp.DummyCookieJar(),
        max_line_size=MAX_HEADER_BYTES,
        max_field_size=MAX_HEADER_BYTES,
        proxy=proxy,
    )


def _proxy(url: URL) -> URL | None:
    """Returns the proxy that the environment names. aiohttp's own option, `trust_env`, reads `.netrc` for every
    request, and rejects a token in addition to credentials found there. A gateway on this machine is requested without
    a proxy, because a proxy on another machine does not reach it. Raises `SettingsError` for a proxy that does not
    speak HTTP."""
    if is_this_machine(url.host or "") or proxy_bypass(f"{url.host_subcomponent}:{url.port}"):
        return None
    proxies = getproxies()
    named = proxies.get(url.scheme) or proxies.get("all")
    if not named:
        return None
    proxy = URL(named if "://" in named else f"http://{named}")
    if proxy.scheme not in ("http", "https"):
        raise SettingsError(
            [
                f"The environment names a proxy of another kind than http, {proxy.scheme}://{proxy.host}. Set NO_PROXY "
                f"for {url.host}, or name an http proxy."
            ]
        )
    return proxy


async def _answer(response: aiohttp.ClientResponse) -> Answer:
    return Answer(str(response.url), response.status, response.headers, await response.read())
