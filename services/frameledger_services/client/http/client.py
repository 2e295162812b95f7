"""`HttpClient`: publish frames and read conversations through a gateway."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any
from urllib.parse import quote
from uuid import UUID

from frameledger.frames.base import INT64_MAX
from frameledger_services.client.conversations import WITHIN, Conversations
from frameledger_services.client.errors import GatewayUnavailableError
from frameledger_services.client.frame_inputs import FrameInput
from frameledger_services.client.http import answers, events
from frameledger_services.client.http.answers import Answer
from frameledger_services.client.http.appends import Appends
from frameledger_services.client.http.problems import GatewayProblemError
from frameledger_services.client.http.requests import Requests
from frameledger_services.client.outcomes import PublishedFrame
from frameledger_services.client.publication import Publications
from frameledger_services.client.reading import (
    NoSuchContextError,
    NoSuchVersionError,
    StoredContext,
    StoredFrame,
    may_exist,
    whole,
    whole_after,
)
from frameledger_services.settings import PREFIX, Settings, SettingsError
from frameledger_services.supervision import Backoff
from frameledger_services.telemetry import tracing
from frameledger_services.url_masking import without_credentials

SOURCE = "frameledger/client"

READ_SECONDS = 5.0
"""How long a read is retried while the gateway is unavailable."""

SHORT_SECONDS = 1.0
"""A stream that ended sooner than this is reopened after a pause."""

MAX_PAUSE_SECONDS = 60.0
"""The longest pause before a stream is reopened: `Retry-After` may come from any proxy in front of the gateway."""

NDJSON = "application/x-ndjson"


class HttpClient(Conversations):
    """Publishes frames and reads conversations through a gateway, on one event loop.

    It has the methods of `Client` that a gateway serves, with the same promises and errors; a method documents where it
    differs. It connects at the first request. Tasks may share a client. Close it with `close`, or use it in `async
    with`. For `https://` it trusts the certificate authorities of the system, or those of `SSL_CERT_FILE`. It uses the
    proxy of `HTTP_PROXY`, `HTTPS_PROXY` or `ALL_PROXY`, except for this machine and the hosts of `NO_PROXY`.

    It has no parameter for the source of frames, which is the token's name; no `erase` and `receipt`, which are for
    operators (`DELETE` at the gateway, with a token for it); no `fork` and `run_inference`, which need the database and
    a provider.

    Each method raises, in addition to its own errors: `GatewayUnavailableError` if the gateway cannot be reached or
    does not respond, after some seconds of retrying; `NotPermittedError` for a token that is unknown or lacks a
    permission; `SchemaError` if the gateway's database has the schema of another release; `GatewayAnswerError` if the
    response does not come from a gateway, or its certificate is not trusted.
    """

    def __init__(
        self, url: str | None = None, token: str | None = None, *, settings: Settings | None = None
    ) -> None:
        """`url` is the gateway's address, and `token` an access token (`frameledger token new`), empty for none. Their
        defaults are `url` and `token` of the settings (`FRAMELEDGER_URL`, `FRAMELEDGER_TOKEN`); the default of
        `settings` is `Settings.from_env()`. Raises `SettingsError` for a missing or invalid address.
        """
        if settings is None and (url is None or token is None):
            settings = Settings.from_env()
        if settings is not None:
            url = settings.url if url is None else url
            token = settings.token.get_secret_value() if token is None and settings.token else token
        if not url:
            raise SettingsError([f"{PREFIX}URL is not set: the address of a gateway."])
        if not url.startswith(("http://", "https://")):
            shown = without_credentials(url)
            raise SettingsError(
                [f"{shown!r} is not the address of a gateway, such as https://frameledger.example"]
            )
        self._requests = Requests(url, token)
        self._appends = Appends(self._requests)
        self._publications = Publications()
        self._closed = False

    async def close(self) -> None:
        """Close all connections. Closing twice does nothing; every other method then raises RuntimeError."""
        self._closed = True
        await self._requests.close()

    async def publish(
        self,
        context_id: str,
        *frames: FrameInput,
        traceparent: str | None = None,
        expected_version: int | None = None,
        causation_id: UUID | str | None = None,
        wait: bool = False,
        within: float = WITHIN,
    ) -> tuple[PublishedFrame, ...]:
        """See `Client.publish`: frames, ids, warnings and errors are the same.

        A request without a response is repeated with the same ids for `within` seconds. A frame that was published
        before counts once, so `repeated` may be true for a frame that no other client published. Many frames are sent
        in several requests, one after the other.

        Raises before anything is published: TypeError, ValueError and `NotPermittedError`. Raises afterwards, always
        with the frames: `NotPublishedError`, which is `FramesUnacknowledgedError` (also if no gateway was reached) or
        `FramesRefusedError`, `NotVisibleError`, and `ContextChangedError`.
        """
        self._check_open()
        deadline = _now() + within
        publication = self._publications.prepare(
            context_id,
            frames,
            source=SOURCE,
            expected_version=expected_version,
            causation_id=causation_id,
        )
        traceparent = traceparent or tracing.current_traceparent()
        headers = {} if traceparent is None else {"traceparent": traceparent}
        if causation_id is not None:
            headers["Frameledger-Causation-Id"] = quote(str(causation_id), safe="")
        with self._publications.sending(publication):
            published = await self._appends.append(publication, headers, deadline, wait=wait)
            if wait and any(one.outcome is None for one in published):
                published = await self._appends.until_stored(
                    context_id, published, publication.frames, deadline
                )
        publication.check_expected(published)
        return tuple(published)

    async def until_stored(
        self, context_id: str, published: Sequence[PublishedFrame], *, within: float = WITHIN
    ) -> tuple[PublishedFrame, ...]:
        """See `Client.until_stored`."""
        self._check_open()
        return tuple(await self._appends.until_stored(context_id, published, (), _now() + within))

    async def context(self, context_id: str, version: int | None = None) -> StoredContext:
        """See `Client.context`. With a redacting token the context has no text."""
        version = None if version is None else whole(version)
        if version is not None and not 0 <= version <= INT64_MAX:
            newest = await self.newest_version(context_id)
            if not newest:
                raise NoSuchContextError(context_id)
            raise NoSuchVersionError(context_id, version, newest)
        params = {} if version is None else {"version": version}
        try:
            response = await self._read("GET", context_id, params=params)
        except GatewayProblemError as error:
            if error.word == "no-such-version" and version is not None:
                with answers.reading():
                    newest = int(error.problem["newest"])
                raise NoSuchVersionError(context_id, version, newest) from None
            raise
        return answers.stored_context(context_id, response.content)

    async def newest_version(self, context_id: str) -> int:
        """See `Client.newest_version`."""
        try:
            return answers.newest_version(await self._read("HEAD", context_id))
        except NoSuchContextError:
            return 0

    async def frames(self, context_id: str, after_version: int = 0) -> AsyncGenerator[StoredFrame, None]:
        """See `Client.frames`. If the response breaks off, the client requests the rest, after the last frame."""
        self._check_open()
        backoff, deadline = Backoff(), _now() + READ_SECONDS
        if not may_exist(context_id):
            return
        after_version = whole_after(after_version)
        while True:
            before = after_version
            try:
                async with self._requests.stream(
                    context_id, "/frames", {"after": after_version}, NDJSON
                ) as lines:
                    async for line in lines:
                        frame = answers.stored_frame(context_id, line)
                        yield frame
                        after_version = frame.version
            except NoSuchContextError:
                return
            except GatewayUnavailableError as error:
                self._check_open()
                pause = _pause(backoff, error.retry_after)
                if after_version == before and _now() + pause >= deadline:
                    raise
                await asyncio.sleep(pause)
            else:
                # A gateway that stops ends a response in the middle of a conversation.
                if after_version == before:
                    return
            if after_version != before:
                backoff.reset()
                deadline = _now() + READ_SECONDS

    async def follow(self, context_id: str, after_version: int = 0) -> AsyncGenerator[StoredFrame, None]:
        """See `Client.follow`. Reopens a connection that breaks or is silent, after the last frame, and waits for a
        gateway that is unavailable meanwhile.

        If the conversation is erased, or a database with fewer frames is restored, it continues with versions after
        those it returned. Raises the errors of the class if the first request fails; later only `NotPermittedError` and
        other permanent errors.
        """
        self._check_open()
        if not may_exist(context_id):
            raise NoSuchContextError(context_id)
        after_version = whole_after(after_version)
        backoff, has_begun = Backoff(), False
        while True:
            began = _now()
            try:
                async with (
                    self._requests.stream(
                        context_id, "/stream", {"after": after_version, "wait": 1}, events.MEDIA_TYPE
                    ) as lines,
                    aclosing(events.events(lines)) as coming,
                ):
                    has_begun = True
                    async for event in coming:
                        if event.name != "frame":
                            continue
                        frame = answers.stored_frame(context_id, event.data)
                        # After a `reset` all frames are sent again.
                        if frame.version > after_version:
                            yield frame
                            after_version = frame.version
                retry_after = 0.0
            except GatewayUnavailableError as error:
                if not has_begun:
                    raise
                retry_after = error.retry_after
                began = _now()
            self._check_open()
            if _now() - began >= SHORT_SECONDS:
                backoff.reset()
            else:
                await asyncio.sleep(_pause(backoff, retry_after))

    async def goes_on(self, context_id: str) -> tuple[bool, int]:
        """Returns whether a run, or a call that the conversation waits for, is open, and the conversation's version;
        False and 0 if the conversation does not exist."""
        try:
            answer = await self._read("GET", context_id, "/activity")
        except NoSuchContextError:
            return False, 0
        with answers.reading():
            activity = answer.json()
            return bool(activity["goes_on"]), int(activity["version"])

    async def waiting_for_client(self, context_id: str) -> dict[str, str]:
        """Returns the calls that wait for the client that defined their function: the functions' names by call id."""
        answer = await self._read("GET", context_id, "/calls")
        with answers.reading():
            return {
                one["tool_call_id"]: one["function_name"]
                for one in answer.json()["calls"]
                if one["status"] == "waiting" and one["started_version"] == one["dispatched_version"]
            }

    async def tools_on_offer(self) -> dict[str, dict[str, Any]]:
        """Returns the functions that running workers offer: their tools in OpenAI's format, by name."""
        answer = await self._ask("GET", None, "/tools")
        with answers.reading():
            listed = answer.json()["tools"]
            return {one["function_name"]: one["schema"] for one in listed if one["schema"] is not None}

    async def live_inference_workers(self) -> int:
        """Returns the number of running inference services."""
        answer = await self._ask("GET", None, "/workers")
        with answers.reading():
            return sum(one["kind"] == "inference" for one in answer.json()["workers"])

    async def _read(self, method: str, context_id: str, path: str = "", **request: Any) -> Answer:
        self._check_open()
        if not may_exist(context_id):
            raise NoSuchContextError(context_id)
        return await self._ask(method, context_id, path, **request)

    async def _ask(self, method: str, context_id: str | None, path: str, **request: Any) -> Answer:
        """Returns the response to a request about a conversation; with None, about no conversation."""
        self._check_open()
        deadline = _now() + READ_SECONDS
        return await self._requests.send(
            method, context_id, path, deadline=deadline, may_overrun=True, **request
        )

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("This client is closed.")


def _pause(backoff: Backoff, retry_after: float) -> float:
    return max(backoff.next(), min(retry_after, MAX_PAUSE_SECONDS))


def _now() -> float:
    return asyncio.get_running_loop().time()
