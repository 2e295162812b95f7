"""`WebsocketLLMService`: the base class of providers that use a websocket.

A request is one exchange: send it, then read events until its last one. Nothing reads in the background. Requests run
concurrently, each on a connection of its own from a pool. A connection whose exchange is incomplete is closed, because
its remaining events belong to no request.
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
from websockets.exceptions import ConnectionClosed, InvalidStatus, InvalidURI, WebSocketException
from websockets.protocol import State

from frameledger.frames import AnyFrame, LLMFullResponseEndFrame
from frameledger_services import logs
from frameledger_services.providers.backoff import backoff
from frameledger_services.providers.errors import (
    ConnectionLostError,
    ProviderError,
    ProviderRefusedError,
    ProviderUnavailableError,
    WebsocketReconnectedError,
)
from frameledger_services.providers.http_errors import MALFORMED, of_status
from frameledger_services.providers.request import Request, encoded
from frameledger_services.providers.service import LLMService, TAdapter

CONNECT_SECONDS = 10.0
CLOSE_SECONDS = 1.0
IDLE_CONNECTIONS = 32
"""The maximum number of idle connections that are kept open."""

_log = logs.get_logger("providers")


@dataclass(eq=False, slots=True)
class _Slot:
    """The connection of one request; None until it is needed."""

    connection: ClientConnection | None
    has_begun: bool = False
    """Whether something was sent: from then on the server has state that belongs to this connection."""

    given_up: bool = False
    """Whether the service was closed: it does not reconnect any more."""

    def check(self, provider: str) -> None:
        if self.given_up:
            raise ConnectionLostError(f"The connections to {provider} were closed.")


_slot: ContextVar[_Slot] = ContextVar("websocket_slot")


class WebsocketLLMService(LLMService[TAdapter], Generic[TAdapter]):
    """Subclasses implement the connection (`_connect_websocket`, `_disconnect_websocket`) and the exchange
    (`_exchange`).

    `self._websocket` is the connection of the current request; several requests may be open at once. In `_exchange`,
    the helpers `_ensure_connected`, `_ws_send` and `_ws_recv` use this request's connection. If it is lost, they
    reconnect and raise `WebsocketReconnectedError`: the server has lost the state of the exchange, and the inference
    must start again. The hook `on_connection_error(service, sentence)` is called for each lost connection.
    """

    RECONNECT_ATTEMPTS: ClassVar[int] = 4
    RECONNECT_FIRST_SECONDS: ClassVar[float] = 0.2
    """The pause after the first failed attempt. Each further pause is twice as long, at most 5 s."""

    def __init__(self, *, reconnect_on_error: bool = True, **options: Any) -> None:
        """With `reconnect_on_error=False`, a lost connection fails its request. `options` are those of `LLMService`."""
        super().__init__(**options)
        self.reconnect_on_error = reconnect_on_error
        self._idle: list[ClientConnection] = []
        self._slots: set[_Slot] = set()

    @property
    def _websocket(self) -> ClientConnection | None:
        """The connection of the current request, or the one that is being opened or closed; None without one."""
        slot = _slot.get(None)
        return None if slot is None else slot.connection

    @_websocket.setter
    def _websocket(self, connection: ClientConnection | None) -> None:
        _slot.get().connection = connection

    @abstractmethod
    async def _connect_websocket(self) -> ClientConnection | None:
        """Open a new connection that is ready for a request. Return it, or set `self._websocket`.

        Raises OSError, TimeoutError or a `WebSocketException`.
        """

    async def _disconnect_websocket(self) -> None:
        """Close `self._websocket` in any state. After one second the connection is aborted."""
        if self._websocket is not None:
            await self._websocket.close()

    @abstractmethod
    def _exchange(self, request: Request) -> AsyncGenerator[AnyFrame | None, None]:
        """Send the request and yield frames as `_stream` does, with the helpers below."""

    # Helpers of an exchange.

    async def _ensure_connected(self) -> None:
        """Connect, with exponential backoff and jitter, unless there is an open connection.

        Raises `ConnectionLostError` if all attempts fail or the service is closed, and `ProviderRefusedError` at once
        if the server refuses the key or the address.
        """
        slot = _slot.get()
        if slot.connection is None or slot.connection.state is not State.OPEN:
            slot.connection = None
            slot.connection = await self._connected(slot)

    async def _ws_send(self, message: Any) -> None:
        """Send a message as JSON. Text, such as a request's `content`, is sent unchanged.

        Raises `WebsocketReconnectedError`, or `ConnectionClosed` if it could not reconnect.
        """
        text = message if isinstance(message, str) else encoded(message).decode()
        slot = _slot.get()
        if not slot.has_begun:
            await self._ensure_connected()
        slot.has_begun = True  # also if only a part is sent
        try:
            await _connection(slot).send(text)
        except ConnectionClosed as error:
            await self._lost(error)

    async def _ws_recv(self) -> Any:
        """Returns the next event, parsed. The caller stops at the last event of the exchange.

        Raises the errors of `_ws_send`, and `ProviderUnavailableError` for an event that cannot be read.
        """
        try:
            event = await _connection(_slot.get()).recv()
        except ConnectionClosed as error:
            await self._lost(error)
        try:
            return json.loads(event)
        except MALFORMED:
            raise ProviderUnavailableError(f"{self.provider} sent a malformed event.") from None

    async def _lost(self, error: ConnectionClosed) -> NoReturn:
        sentence = f"The connection to {self.provider} was lost: {error}."
        await self.notify("on_connection_error", sentence)
        if not self.reconnect_on_error or not await self._try_reconnect():
            raise error
        raise WebsocketReconnectedError(f"{sentence} It was reconnected.") from error

    async def _try_reconnect(self) -> bool:
        """Reconnect. Returns whether that succeeded."""
        try:
            await self._ensure_connected()
        except ConnectionLostError:
            return False
        _slot.get().has_begun = False
        return True

    # The connection pool.

    async def _connect(self) -> None:
        """Open one connection at the start, so that the first request need not wait for it. A failure is logged."""
        slot = _Slot(None)
        self._slots.add(slot)
        try:
            self._idle.append(await self._connected(slot))
        except ProviderError as error:
            _log.warning("provider.connection_failed", provider=self.provider, error=error.message)
        finally:
            self._slots.discard(slot)

    async def _disconnect(self) -> None:
        slots, idle = list(self._slots), list(self._idle)
        self._idle.clear()
        for slot in slots:
            slot.given_up = True
        leased = [slot.connection for slot in slots if slot.connection is not None]
        await asyncio.gather(*[self._closed(connection) for connection in (*idle, *leased)])

    async def _connected(self, slot: _Slot) -> ClientConnection:
        attempts = self.RECONNECT_ATTEMPTS if self.reconnect_on_error else 1
        for tries in range(attempts):
            slot.check(self.provider)
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    connection = await self._new_connection()
            except (OSError, TimeoutError, WebSocketException) as error:
                if (refusal := self._refusal(error)) is not None:
                    await self.notify("on_connection_error", refusal.message)
                    raise refusal from error
                if tries + 1 == attempts:
                    sentence = f"No connection to {self.provider}: {type(error).__name__}."
                    await self.notify("on_connection_error", sentence)
                    raise ConnectionLostError(sentence, code="no_connection") from error
                await asyncio.sleep(backoff(tries, first=self.RECONNECT_FIRST_SECONDS, longest=5.0))
                continue
            if slot.given_up:
                await self._closed(connection)
            slot.check(self.provider)
            return connection
        raise AssertionError("the last attempt returns or raises")

    def _refusal(self, error: Exception) -> ProviderRefusedError | None:
        """Returns the error of a connection that no further attempt can make; None for a temporary failure."""
        match error:
            case InvalidURI():
                return ProviderRefusedError(f"The address of {self.provider} is not that of a websocket.")
            case InvalidStatus(response=response):
                found = of_status(self.provider, response.status_code, message=response.reason_phrase)
                return found if isinstance(found, ProviderRefusedError) else None
        return None

    async def _new_connection(self) -> ClientConnection:
        slot = _Slot(None)
        token = _slot.set(slot)
        try:
            connection = await self._connect_websocket() or slot.connection
        finally:
            _slot.reset(token)
        if connection is None:
            raise TypeError(
                f"{type(self).__name__}._connect_websocket returned no connection and set no self._websocket"
            )
        return connection

    async def _closed(self, connection: ClientConnection) -> None:
        """Close a connection. Takes at most one second."""
        token = _slot.set(_Slot(connection))
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await self._disconnect_websocket()
        finally:
            _slot.reset(token)
            connection.transport.abort()

    async def _stream(self, request: Request) -> AsyncGenerator[AnyFrame | None, None]:
        slot = _Slot(self._idle.pop() if self._idle else None)
        self._slots.add(slot)
        complete = False
        try:
            async with aclosing(self._exchange(request)) as frames:
                while True:
                    # Set for each step: the steps of a generator may be taken by different tasks.
                    token = _slot.set(slot)
                    try:
                        frame = await anext(frames)
                    except StopAsyncIteration:
                        return
                    finally:
                        _slot.reset(token)
                    complete = isinstance(frame, LLMFullResponseEndFrame)
                    yield frame
        except ConnectionClosed as error:
            raise ConnectionLostError(f"The connection to {self.provider} was lost: {error}.") from error
        finally:
            self._slots.discard(slot)
            if slot.connection is not None:
                await self._return(slot.connection, (complete or not slot.has_begun) and not slot.given_up)

    async def _return(self, connection: ClientConnection, usable: bool) -> None:
        if usable and connection.state is State.OPEN and len(self._idle) < IDLE_CONNECTIONS:
            self._idle.append(connection)
        else:
            await self._closed(connection)


def _connection(slot: _Slot) -> ClientConnection:
    if slot.connection is None:
        raise RuntimeError("there is no connection: call _ensure_connected or _ws_send first")
    return slot.connection
