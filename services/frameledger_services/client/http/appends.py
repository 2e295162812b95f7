"""Appends: frames sent to a gateway in requests of limited size, and waiting until they are stored."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Iterator, Sequence

from frameledger.decoding import MAX_VALUE_BYTES
from frameledger.errors import FrameledgerError
from frameledger.frames import AnyFrame
from frameledger.record import Outgoing
from frameledger_services.client.errors import (
    FramesRefusedError,
    FramesUnacknowledgedError,
    GatewayAnswerError,
    GatewayUnavailableError,
    NotPermittedError,
    NotPublishedError,
    NotVisibleError,
)
from frameledger_services.client.http import answers
from frameledger_services.client.http.problems import GatewayProblemError, is_about_frames
from frameledger_services.client.http.requests import Requests
from frameledger_services.client.outcomes import PublishedFrame
from frameledger_services.client.publication import Publication
from frameledger_services.client.reading import NoSuchContextError

MAX_FRAMES = 500
MAX_BYTES = MAX_VALUE_BYTES
"""The limits of one request to a gateway."""

WAIT_SECONDS = 20.0
"""How long one request asks the gateway to wait; after that the client sends another request."""

LOOK_SECONDS = 0.1
"""The polling interval for frames that should be stored within a second."""


class Appends:
    """The append requests of one client. A `deadline` is a time of the event loop."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    async def append(
        self, publication: Publication, headers: dict[str, str], deadline: float, *, wait: bool
    ) -> list[PublishedFrame]:
        """Returns the frames with their places on the log, and with outcomes if the gateway waited for them."""
        append = _Append(self._requests, publication, headers, deadline)
        chunks = list(_chunks(publication.records))
        for records in chunks:
            # The response for the last frame implies that the others are stored, but not with which outcomes.
            await append.send(records, _whole_seconds(deadline) if wait and len(chunks) == 1 else 0)
        return append.published

    async def until_stored(
        self,
        context_id: str,
        published: Sequence[PublishedFrame],
        frames: Sequence[AnyFrame],
        deadline: float,
    ) -> list[PublishedFrame]:
        """Returns the frames with their outcomes, once all are stored. Raises `NotVisibleError` at the deadline."""
        stored = list[PublishedFrame]()
        why = (
            "Published, but not in the tables in time. Is a projector running (`GET /v1/lag` at the gateway)?"
        )
        while len(stored) < len(published):
            some = published[len(stored) : len(stored) + MAX_FRAMES]
            listed = [{"id": one.frame_id, "place": str(one)} for one in some]
            seconds = _whole_seconds(deadline)
            try:
                response = await self._requests.send(
                    "POST",
                    context_id,
                    "/frames/outcomes",
                    deadline=deadline,
                    wait_seconds=seconds,
                    content=json.dumps({"frames": listed}).encode(),
                    headers={"Content-Type": "application/json", **_prefer(seconds)},
                )
                if response.status == 200:
                    stored += answers.published_frames(response.content, some)
                    continue
                with answers.reading():
                    detail = response.json().get("detail")
            except FrameledgerError as error:
                raise NotVisibleError(
                    f"Published, but it is unknown whether the frames are in the tables: {error}",
                    published,
                    frames,
                ) from error
            if seconds:
                why = detail or why
            if _now() + LOOK_SECONDS >= deadline:
                raise NotVisibleError(why, published, frames)
            await asyncio.sleep(0 if seconds else LOOK_SECONDS)
        return stored


class _Append:
    """The frames of one publication, sent in several requests."""

    def __init__(
        self, requests: Requests, publication: Publication, headers: dict[str, str], deadline: float
    ) -> None:
        self._requests = requests
        self._publication = publication
        self._headers = {**headers, "Content-Type": "application/json"}
        self._deadline = deadline
        self.published: list[PublishedFrame] = []

    async def send(self, records: Sequence[Outgoing], seconds: int) -> None:
        """Append the records of the next frames. Asks the gateway to wait until they are stored, for these seconds."""
        context_id, left = self._publication.context_id, self._publication.frames[len(self.published) :]
        values = [one.value for one in records]
        acknowledged = set[str]()
        try:
            response = await self._requests.send(
                "POST",
                context_id,
                "/frames",
                deadline=self._deadline,
                wait_seconds=seconds,
                published=acknowledged,
                content=values[0] if len(values) == 1 else b"[%s]" % b",".join(values),
                headers={**self._headers, **_prefer(seconds)},
            )
            content = response.content
        except GatewayUnavailableError as error:
            raise FramesUnacknowledgedError(str(error), _unknown(left, acknowledged)) from error
        except NoSuchContextError as error:
            raise NotPermittedError(
                f"{self._requests.url} rejects the request. The token may not publish to {context_id!r}."
            ) from error
        except NotPermittedError as error:
            if not self.published:
                raise
            # The caller was permitted before: the gateway has accepted some of the frames.
            raise FramesRefusedError(str(error), left) from error
        except GatewayProblemError as error:
            if error.word != "key-reused":
                raise _refusal(error, left, acknowledged.union(error.problem.get("published", ()))) from error
            content = json.dumps(error.problem).encode()
        except GatewayAnswerError as error:
            raise _refusal(error, left, acknowledged) from error
        try:
            self.published += answers.published_frames(content, left[: len(values)])
        except GatewayAnswerError as error:
            raise _refusal(error, left, acknowledged) from error


def _refusal(
    error: GatewayAnswerError, frames: Sequence[AnyFrame], acknowledged: set[str]
) -> NotPublishedError:
    """Returns the error for frames that a gateway rejects, or that its response does not mention."""
    unknown = _unknown(frames, acknowledged)
    if is_about_frames(error):
        return FramesRefusedError(f"The gateway rejects the frames. {error}", unknown)
    return FramesUnacknowledgedError(str(error), unknown)


def _unknown(frames: Sequence[AnyFrame], acknowledged: set[str]) -> list[AnyFrame]:
    return [one for one in frames if one.id not in acknowledged]


def _now() -> float:
    return asyncio.get_running_loop().time()


def _whole_seconds(deadline: float) -> int:
    """Returns how long a gateway may wait, in whole seconds, as `Prefer` requires."""
    return max(0, math.floor(min(deadline - _now(), WAIT_SECONDS)))


def _prefer(seconds: int) -> dict[str, str]:
    return {"Prefer": f"wait={seconds}" if seconds else "respond-async"}


def _chunks(records: Sequence[Outgoing]) -> Iterator[list[Outgoing]]:
    """Yields the records in groups that fit into one request."""
    chunk, size = list[Outgoing](), 0
    for record in records:
        # The values are separated by commas, with brackets around them.
        if chunk and (len(chunk) == MAX_FRAMES or size + len(record.value) + len(chunk) + 2 > MAX_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(record)
        size += len(record.value)
    if chunk:
        yield chunk
