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
    NotVisibleError,
)
from frameledger_services.client.http import answers
from frameledger_services.client.http.problems import GatewayProblemError, is_about_frames
from frameledger_services.client.http.requests import Requests
from frameledger_services.client.outcomes import PublishedFrame
from frameledger_services.client.publication import Publication
from frameledger_services.client.reading import NoSuchContextError

MOST_FRAMES = 500
MOST_BYTES = MAX_VALUE_BYTES
"""The limits of one request to a gateway."""

WAIT_SECONDS = 20.0
"""How long one request asks the gateway to wait; then the client sends another."""

LOOK_SECONDS = 0.1
"""The polling interval for frames that should be stored within a second."""


class Appends:
    """The requests by which one client appends frames. `until` is a time of the event loop."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    async def append(
        self, publication: Publication, headers: dict[str, str], until: float, *, wait: bool
    ) -> list[PublishedFrame]:
        """Returns the frames as they lie on the log, with outcomes where the gateway has waited for them."""
        frames, published = publication.frames, list[PublishedFrame]()
        chunks = list(_chunks(publication.records))
        for records in chunks:
            left = frames[len(published) :]
            # The last one's answer says that the others are stored too, and not what became of them.
            seconds = _whole_seconds(until) if wait and len(chunks) == 1 else 0
            prefer = f"wait={seconds}" if seconds else "respond-async"
            published += await self._append_chunk(
                publication.context_id,
                records,
                {**headers, "Prefer": prefer},
                left,
                until,
                seconds,
                is_first=not published,
            )
        return published

    async def _append_chunk(
        self,
        context_id: str,
        records: Sequence[Outgoing],
        headers: dict[str, str],
        left: Sequence[AnyFrame],
        until: float,
        waits: float,
        *,
        is_first: bool,
    ) -> list[PublishedFrame]:
        """Append the records of the first frames of `left`. After the first request the caller is known to be
        permitted: a gateway that then refuses has taken some of the frames."""
        values = [one.value for one in records]
        content = values[0] if len(values) == 1 else b"[%s]" % b",".join(values)
        acknowledged = set[str]()
        try:
            response = await self._requests.send(
                "POST",
                context_id,
                "/frames",
                until=until,
                deadline=until,
                waits=waits,
                published=acknowledged,
                content=content,
                headers={**headers, "Content-Type": "application/json"},
            )
        except GatewayUnavailableError as error:
            unknown = [one for one in left if one.id not in acknowledged]
            raise FramesUnacknowledgedError(str(error), unknown) from error
        except NoSuchContextError as error:
            raise NotPermittedError(
                f"{self._requests.url} refuses it. The token may not publish to {context_id!r}."
            ) from error
        except NotPermittedError as error:
            if is_first:
                raise
            raise FramesRefusedError(str(error), left) from error
        except GatewayAnswerError as error:
            if isinstance(error, GatewayProblemError):
                if error.word == "key-reused":
                    return answers.published_frames(json.dumps(error.problem).encode(), left[: len(values)])
                acknowledged |= set(error.problem.get("published", ()))
            unknown = [one for one in left if one.id not in acknowledged]
            if is_about_frames(error):
                raise FramesRefusedError(f"The gateway refuses it. {error}", unknown) from error
            raise FramesUnacknowledgedError(str(error), unknown) from error
        return answers.published_frames(response.content, left[: len(values)])

    async def until_stored(
        self,
        context_id: str,
        published: Sequence[PublishedFrame],
        frames: Sequence[AnyFrame],
        until: float,
    ) -> list[PublishedFrame]:
        """Returns the frames with their outcomes, once all are in the tables. Raises `NotVisibleError` at `until`."""
        stored = list[PublishedFrame]()
        why = (
            "Published, but not in the tables in time. Is a projector running (`GET /v1/lag` at the gateway)?"
        )
        while len(stored) < len(published):
            some = published[len(stored) : len(stored) + MOST_FRAMES]
            listed = [{"id": one.frame_id, "place": str(one)} for one in some]
            seconds = _whole_seconds(until)
            try:
                response = await self._requests.send(
                    "POST",
                    context_id,
                    "/frames/outcomes",
                    until=until,
                    deadline=until,
                    waits=seconds,
                    content=json.dumps({"frames": listed}).encode(),
                    headers={
                        "Content-Type": "application/json",
                        "Prefer": f"wait={seconds}" if seconds else "respond-async",
                    },
                )
            except FrameledgerError as error:
                raise NotVisibleError(
                    f"Published, but not in the tables as far as we see: {error}", published, frames
                ) from error
            if response.status == 200:
                stored += answers.published_frames(response.content, some)
                continue
            if seconds:
                why = response.json().get("detail") or why
            if _now() + LOOK_SECONDS >= until:
                raise NotVisibleError(why, published, frames)
            await asyncio.sleep(0 if seconds else LOOK_SECONDS)
        return stored


def _now() -> float:
    return asyncio.get_running_loop().time()


def _whole_seconds(until: float) -> int:
    """Returns for how long a gateway may wait: whole seconds, as `Prefer` has them."""
    return max(0, math.floor(min(until - _now(), WAIT_SECONDS)))


def _chunks(records: Sequence[Outgoing]) -> Iterator[list[Outgoing]]:
    """Yields as many records at once as one request takes."""
    chunk, size = list[Outgoing](), 0
    for record in records:
        # Between the values stand commas, and brackets around them.
        if chunk and (len(chunk) == MOST_FRAMES or size + len(record.value) + len(chunk) + 2 > MOST_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(record)
        size += len(record.value)
    if chunk:
        yield chunk
