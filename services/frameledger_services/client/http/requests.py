"""Requests to a gateway, retried while it is unavailable. Every request of the client may be repeated."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import httpx

from frameledger_services.client.errors import GatewayUnavailableError
from frameledger_services.client.http.problems import error_of, problem_of
from frameledger_services.supervision import Backoff

CONNECT_SECONDS = 10.0

ANSWER_SECONDS = 15.0
"""A request without a response for this time, plus the time that it asks the gateway to wait, is repeated."""

SILENT_SECONDS = 40.0
"""A stream that is silent for this time is dead: a gateway sends a heartbeat every 15 seconds."""


class Requests:
    """Requests about conversations to one gateway."""

    def __init__(self, url: str, token: str | None) -> None:
        """Connects to nothing yet. Raises ValueError for an address or a token that cannot be one."""
        self.url = url.rstrip("/")
        headers = {"Authorization": f"Bearer {token.strip()}"} if token else {}
        try:
            self._http = httpx.AsyncClient(
                headers=headers,
                # As many streams as the caller follows.
                limits=httpx.Limits(max_connections=None, max_keepalive_connections=20),
                # To read the certificates of all authorities takes longer than most programs with a gateway near by.
                verify=not self.url.startswith("http://"),
            )
        except UnicodeEncodeError as error:
            raise ValueError("A token is ASCII; FRAMELEDGER_TOKEN is not.") from error

    async def close(self) -> None:
        """Close all connections; twice does nothing."""
        await self._http.aclose()

    async def send(
        self,
        method: str,
        context_id: str | None,
        path: str = "",
        *,
        until: float,
        waits: float = 0.0,
        published: set[str] | None = None,
        **request: Any,
    ) -> httpx.Response:
        """Returns the response. Retries while the gateway is unavailable, `until` a time of the event loop.

        `waits` is the number of seconds that the request asks the gateway to wait. Adds the ids of frames that the
        gateway reports as published to `published`. Raises what `error_of` returns.
        """
        backoff = Backoff()
        failure: GatewayUnavailableError | None = None
        while True:
            try:
                async with asyncio.timeout_at(until):
                    timeout = httpx.Timeout(ANSWER_SECONDS + waits, connect=CONNECT_SECONDS)
                    response = await self._http.request(
                        method, self.address(context_id, path), timeout=timeout, **request
                    )
            except TimeoutError as error:
                # What was said before says more.
                raise failure or self._unanswered(error) from error
            except (httpx.TransportError, httpx.InvalidURL) as error:
                failure = self._unanswered(error)
            else:
                error_or_none = error_of(response, self.url, context_id)
                if error_or_none is None:
                    return response
                if not isinstance(error_or_none, GatewayUnavailableError):
                    raise error_or_none
                failure = error_or_none
                if published is not None:
                    published.update(problem_of(response).get("published", ()))
            pause = max(backoff.next(), failure.retry_after)
            if asyncio.get_running_loop().time() + pause >= until:
                raise failure
            await asyncio.sleep(pause)

    @asynccontextmanager
    async def stream(
        self, context_id: str, path: str, params: Mapping[str, Any], accept: str
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Yields the lines of a response as they arrive, without line ends. Does not retry.

        Raises what `error_of` returns, and `GatewayUnavailableError` also when the answer breaks off.
        """
        try:
            async with self._http.stream(
                "GET",
                self.address(context_id, path),
                params=params,
                headers={"Accept": accept},
                timeout=httpx.Timeout(SILENT_SECONDS, connect=CONNECT_SECONDS),
            ) as response:
                if not response.is_success:
                    await response.aread()
                if (error := error_of(response, self.url, context_id)) is not None:
                    raise error
                yield _lines(response)
        except (httpx.TransportError, httpx.InvalidURL) as error:
            raise self._unanswered(error) from error

    def address(self, context_id: str | None, path: str) -> str:
        """Returns the address of what belongs to a conversation; for None, to none."""
        if context_id is None:
            return f"{self.url}/v1{path}"
        # Nothing but dots would be a place in a path.
        segment = quote(context_id, safe="").replace(".", "%2E")
        return f"{self.url}/v1/contexts/{segment}{path}"

    def _unanswered(self, error: Exception) -> GatewayUnavailableError:
        if isinstance(error, httpx.LocalProtocolError | httpx.InvalidURL | httpx.UnsupportedProtocol):
            raise ValueError(f"This cannot be asked of {self.url}: {error}") from error
        reason = str(error) or (
            "no answer in time" if isinstance(error, TimeoutError) else type(error).__name__
        )
        found = GatewayUnavailableError(f"The gateway {self.url} does not answer: {reason}.")
        found.__cause__ = error
        return found


async def _lines(response: httpx.Response) -> AsyncIterator[bytes]:
    """Those of httpx also end where a text has another end of line than a file."""
    left = b""
    async for piece in response.aiter_bytes():
        *lines, left = (left + piece).split(b"\n")
        for line in lines:
            yield line
