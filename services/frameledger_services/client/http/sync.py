"""`SyncHttpClient`: the client over HTTP for scripts and notebooks, without `await`."""

from __future__ import annotations

from uuid import UUID

from frameledger_services.client.conversations import WITHIN
from frameledger_services.client.frame_inputs import FrameInput
from frameledger_services.client.http.client import HttpClient
from frameledger_services.client.outcomes import PublishedFrame
from frameledger_services.client.sync import Threaded
from frameledger_services.settings import Settings


class SyncHttpClient(Threaded[HttpClient]):
    """An `HttpClient` on an event loop in a thread of its own, as `SyncClient` is a `Client`."""

    def __init__(
        self, url: str | None = None, token: str | None = None, *, settings: Settings | None = None
    ) -> None:
        """See `HttpClient`."""
        super().__init__(HttpClient(url, token, settings=settings))

    def publish(
        self,
        context_id: str,
        *frames: FrameInput,
        traceparent: str | None = None,
        expected_version: int | None = None,
        causation_id: UUID | str | None = None,
        wait: bool = False,
        within: float = WITHIN,
    ) -> tuple[PublishedFrame, ...]:
        """See `HttpClient.publish`."""
        return self._do(
            self._client.publish(
                context_id,
                *frames,
                traceparent=traceparent,
                expected_version=expected_version,
                causation_id=causation_id,
                wait=wait,
                within=within,
            )
        )
