"""Interrupts an answer when the client that waits for it disconnects, or may no longer read it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from frameledger_services import logs
from frameledger_services.client import BrokerError, NotPublishedError
from frameledger_services.gateway.live import event_stream
from frameledger_services.gateway.openai.followers import Followers
from frameledger_services.gateway.openai.following import Following
from frameledger_services.store.connections import DatabaseError

_log = logs.get_logger("gateway")


class Listening:
    """One client of an answer. Others may follow the same answer: those that sent the same request again."""

    def __init__(
        self,
        following: Following,
        followers: Followers,
        request_name: str,
        receive: Callable[[], Awaitable[object]],
        is_good: Callable[[], bool],
        *,
        interrupts: bool,
        may_be_again: bool = False,
    ) -> None:
        """`followers` has the clients of each answer. `request_name` names the request, and is the same for each
        repetition. `is_good` returns whether the client may still read the answer. Without `interrupts` the answer
        continues when all of its clients are gone. With `may_be_again` this request may be a repetition."""
        self.following = following
        self.is_gone = False
        self.is_refused = False
        """Whether it is gone because its token is no longer valid."""

        self._followers = followers
        # A repetition of the request may follow from another version: that of the last of its results.
        self._key = following.question.context_id, request_name
        self._may_be_again = may_be_again
        self._followers.add(self._key, is_shared=may_be_again)
        self._interrupts = interrupts
        self._is_good = is_good
        self._watching = asyncio.create_task(self._watch(receive))
        self._is_closed = False

    async def close(self, *, gave_up: bool = False) -> None:
        """Stop listening. A second call does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        following = self.following
        following.close()
        self._watching.cancel()
        self._followers.remove(self._key, is_shared=self._may_be_again)
        is_wanted = not (self.is_gone or gave_up) or following.is_over
        if is_wanted or not self._interrupts:
            return
        try:
            # If its clients have left several gateways, the last gateway interrupts.
            if not await self._followers.has(self._key):
                # The request may be repeated during the check whether the answer is in progress.
                await following.interrupt(lambda: not self._followers.has_here(self._key))
        except (BrokerError, NotPublishedError, DatabaseError) as error:
            _log.warning(
                "gateway.not_interrupted", context_id=following.question.context_id, reason=str(error)
            )

    def check(self) -> None:
        """Check whether the client may still read the answer. If not, it counts as gone."""
        if not self.is_gone and not self._is_good():
            self.is_refused = True
            self._go()

    async def _watch(self, receive: Callable[[], Awaitable[object]]) -> None:
        while not self.is_gone:
            try:
                async with asyncio.timeout(event_stream.HEARTBEAT_SECONDS):
                    message = await receive()
            except TimeoutError:
                self.check()
                continue
            if isinstance(message, dict) and message["type"] == "http.disconnect":
                self._go()

    def _go(self) -> None:
        self.is_gone = True
        self.following.close()
