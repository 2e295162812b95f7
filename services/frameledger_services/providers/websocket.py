"""`WebsocketLLMService`: the base of providers that are spoken to over a websocket.

A request is one exchange: send it, read events until the one that ends it. Nothing reads in the background. Many
requests run at once, each with a connection of its own from a pool; a connection that was left in the middle of an
exchange is closed, since what it still brings belongs to nobody.
"""

from __future__ import annotations

import asyncio
import json
from abc import abstractmethod
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, NoReturn

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, WebSocketException
from websockets.protocol import State

from frameledger.frames import AnyFrame, LLMFullResponseEndFrame
from frameledger_services import logs
from frameledger_services.providers.backoff import backoff
from frameledger_services.providers.errors import (
    ConnectionLostError,
    ProviderError,
    WebsocketReconnectedError,
)
from frameledger_services.providers.request import Request, encoded
from frameledger_services.providers.service import LLMService, TAdapter

CONNECT_SECONDS = 10.0
CLOSE_SECONDS = 1.0
IDLE_CONNECTIONS = 32
"""How many connections without a request are kept open."""

_log = logs.get_logger("providers")


@dataclass(eq=False, slots=True)
class _Line:
    """The connection of one request; null until it is needed."""

    connection: ClientConnection | None
    begun: bool = False
    """Something was sent: from now on the server knows what no other connection knows."""

    given_up: bool = False
    """The service was closed: no reconnecting any more."""

    def check(self, provider: str) -> None:
        if self.given_up:
            raise ConnectionLostError(f"The connections to {provider} were closed.")


_line: ContextVar[_Line] = ContextVar("websocket_line")


class WebsocketLLMService(LLMService[TAdapter], Generic[TAdapter]):
    """Subclasses connect (`_connect_websocket`, `_disconnect_websocket`) and hold the exchange (`_exchange`).

    `self._websocket` is the connection of the request that asks for it, of any number that are open at once.
    In `_exchange` the helpers `_ensure_connected`, `_ws_send` and `_ws_recv` speak over this request's connection. When
    it is lost they connect again and raise `WebsocketReconnectedError`: what the server knew of the exchange is gone,
    and the inference must begin again. The hook `on_connection_error(service, sentence)` is told of each loss.
    """

    RECONNECT_ATTEMPTS: ClassVar[int] = 4
    RECONNECT_FIRST_SECS: ClassVar[float] = 0.2
    """The pause after the first attempt that failed; each one after that is twice as long, and at most 5 s."""

    def __init__(self, *, reconnect_on_error: bool = True, **options: Any) -> None:
        """`reconnect_on_error=False`: the first loss is the error of the request. `options` are `LLMService`'s."""
        super().__init__(**options)
        self.reconnect_on_error = reconnect_on_error
        self._idle: list[ClientConnection] = []
        self._lines: set[_Line] = set()

    @property
    def _websocket(self) -> ClientConnection | None:
        """The connection of the request that is being answered, or that is being opened or closed; null without one."""
        line = _line.get(None)
        return None if line is None else line.connection

    @_websocket.setter
    def _websocket(self, connection: ClientConnection | None) -> None:
        _line.get().connection = connection

    @abstractmethod
    async def _connect_websocket(self) -> ClientConnection | None:
        """Make a new connection, ready for a request: return it, or set `self._websocket`.

        Raises OSError, TimeoutError or a `WebSocketException`.
        """

    async def _disconnect_websocket(self) -> None:
        """Close `self._websocket`, whatever its state. After a second it is cut off."""
        if self._websocket is not None:
            await self._websocket.close()

    @abstractmethod
    def _exchange(self, request: Request) -> AsyncGenerator[AnyFrame | None, None]:
        """Send the request and yield what `_stream` promises, by way of the helpers below."""

    # The helpers of an exchange.

    async def _ensure_connected(self) -> None:
        """Connect if there is no connection that is alive, with exponential backoff and jitter.

        Raises `ConnectionLostError` when no attempt succeeded, or the service was closed.
        """
        line = _line.get()
        if line.connection is None or line.connection.state is not State.OPEN:
            line.connection = None
            line.connection = await self._connected(line)

    async def _ws_send(self, message: Any) -> None:
        """Send a message as JSON; text goes as it is, such as a request's `content`.

        Raises `WebsocketReconnectedError`, or the `ConnectionClosed` itself if it could not be mended.
        """
        text = message if isinstance(message, str) else encoded(message).decode()
        line = _line.get()
        if not line.begun:
            await self._ensure_connected()
        line.begun = True  # also if it is sent in part only
        try:
            await _connection(line).send(text)
        except ConnectionClosed as error:
            await self._lost(error)

    async def _ws_recv(self) -> Any:
        """The next event, parsed. The caller stops at the one that ends the exchange.

        Raises as `_ws_send`, and `ProviderError` for what is no JSON.
        """
        try:
            event = await _connection(_line.get()).recv()
        except ConnectionClosed as error:
            await self._lost(error)
        try:
            return json.loads(event)
        except ValueError:
            raise ProviderError(f"{self.provider} sent an event that is no JSON.") from None

    async def _lost(self, error: ConnectionClosed) -> NoReturn:
        sentence = f"The connection to {self.provider} was lost: {error}."
        await self.notify("on_connection_error", sentence)
        if not self.reconnect_on_error or not await self._try_reconnect():
            raise error
        raise WebsocketReconnectedError(f"{sentence} It was made again.") from error

    async def _try_reconnect(self) -> bool:
        """Whether the connection of this request could be made again."""
        try:
            await self._ensure_connected()
        except ConnectionLostError:
            return False
        _line.get().begun = False
        return True

    # The pool.

    async def _connect(self) -> None:
        """One connection at the start, so that the first request does not wait for it. It is no error if it fails."""
        line = _Line(None)
        self._lines.add(line)
        try:
            self._idle.append(await self._connected(line))
        except ConnectionLostError as error:
            _log.warning("provider.connection_failed", provider=self.provider, error=error.message)
        finally:
            self._lines.discard(line)

    async def _disconnect(self) -> None:
        lines, idle = list(self._lines), list(self._idle)
        self._idle.clear()
        for line in lines:
            line.given_up = True
        leased = [line.connection for line in lines if line.connection is not None]
        await asyncio.gather(*[self._closed(connection) for connection in (*idle, *leased)])

    async def _connected(self, line: _Line) -> ClientConnection:
        attempts = self.RECONNECT_ATTEMPTS if self.reconnect_on_error else 1
        for tries in range(attempts):
            line.check(self.provider)
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    connection = await self._made()
            except (OSError, TimeoutError, WebSocketException) as error:
                if tries + 1 == attempts:
                    sentence = f"No connection to {self.provider}: {type(error).__name__}."
                    await self.notify("on_connection_error", sentence)
                    raise ConnectionLostError(sentence, code="no_connection") from error
                await asyncio.sleep(backoff(tries, first=self.RECONNECT_FIRST_SECS, longest=5.0))
                continue
            if line.given_up:
                await self._closed(connection)
            line.check(self.provider)
            return connection
        raise AssertionError("the last attempt returns or raises")

    async def _made(self) -> ClientConnection:
        line = _Line(None)
        token = _line.set(line)
        try:
            connection = await self._connect_websocket() or line.connection
        finally:
            _line.reset(token)
        if connection is None:
            raise TypeError(
                f"{type(self).__name__}._connect_websocket returned no connection and set no self._websocket"
            )
        return connection

    async def _closed(self, connection: ClientConnection) -> None:
        """Close a connection; at most a second long."""
        token = _line.set(_Line(connection))
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await self._disconnect_websocket()
        finally:
            _line.reset(token)
            connection.transport.abort()

    async def _stream(self, request: Request) -> AsyncGenerator[AnyFrame | None, None]:
        line = _Line(self._idle.pop() if self._idle else None)
        self._lines.add(line)
        complete = False
        try:
            async with aclosing(self._exchange(request)) as frames:
                while True:
                    # Set for each step: the steps of a generator may be taken by different tasks.
                    token = _line.set(line)
                    try:
                        frame = await anext(frames)
                    except StopAsyncIteration:
                        return
                    finally:
                        _line.reset(token)
                    complete = isinstance(frame, LLMFullResponseEndFrame)
                    yield frame
        except ConnectionClosed as error:
            raise ConnectionLostError(f"The connection to {self.provider} was lost: {error}.") from error
        finally:
            self._lines.discard(line)
            if line.connection is not None:
                await self._return(line.connection, (complete or not line.begun) and not line.given_up)

    async def _return(self, connection: ClientConnection, usable: bool) -> None:
        if usable and connection.state is State.OPEN and len(self._idle) < IDLE_CONNECTIONS:
            self._idle.append(connection)
        else:
            await self._closed(connection)


def _connection(line: _Line) -> ClientConnection:
    if line.connection is None:
        raise RuntimeError("an exchange begins with _ensure_connected or _ws_send")
    return line.connection
