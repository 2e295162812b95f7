"""Publishing frames for a request: their source, and the problems that errors of publishing become."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote
from uuid import UUID

from starlette.requests import Request

from frameledger.decode_error import DecodeError
from frameledger.frames import AnyFrame
from frameledger_services.client import (
    BrokerError,
    FramesRefusedError,
    FramesUnacknowledgedError,
    NotVisibleError,
    PublishedFrame,
)
from frameledger_services.event_log.publish_errors import TooLargeError
from frameledger_services.gateway.access import caller
from frameledger_services.gateway.dependencies import Dependencies
from frameledger_services.gateway.problems import ProblemError

SOURCE = "frameledger/gateway"

KEYS = UUID("6e2c3a5e-6f41-5c3e-9b7d-0d3f3a1c9f52")
"""The namespace of ids that are derived from an `Idempotency-Key`. It never changes."""


def source_of(request: Request) -> str:
    """Returns the source of published frames: the gateway, and the name of the request's token."""
    token_caller = caller.of(request.scope)
    return SOURCE if token_caller.token_id is None else f"{SOURCE}/{quote(token_caller.name, safe='')}"


async def publish(
    dependencies: Dependencies,
    request: Request,
    context_id: str,
    frame: AnyFrame,
    expected_version: int | None,
) -> PublishedFrame:
    """Publish a frame for a request and return it once it is stored.

    Raises `ContextChangedError` if the conversation has changed since `expected_version`, and the problems
    `not-visible-yet`, `log-away`, `too-large` and `bad-parameter`.
    """
    with publishing(context_id, [frame.id]):
        [stored] = await dependencies.client.publish(
            context_id,
            frame,
            source=source_of(request),
            traceparent=request.headers.get("traceparent"),
            expected_version=expected_version,
            wait=True,
            within=dependencies.settings.gateway_request_secs,
        )
    return stored


@contextmanager
def publishing(context_id: str, ids: Sequence[str | None], **of_refused: Any) -> Iterator[None]:
    """Converts errors of publishing frames with these ids to problems that list which frames are on the log.
    `of_refused` has members of the problem for a frame that is too long to be sent."""
    try:
        yield
    except NotVisibleError as error:
        raise ProblemError("not-visible-yet", str(error), context_id=context_id) from error
    except FramesUnacknowledgedError as error:
        raise not_published("log-away", str(error), [one.id for one in error.frames], ids) from error
    except FramesRefusedError as error:
        word = "too-large" if isinstance(error.__cause__, TooLargeError) else "log-away"
        raise not_published(word, str(error), [one.id for one in error.frames], ids) from error
    except BrokerError as error:
        raise not_published("log-away", str(error), ids, ids) from error
    except ValueError as error:
        if isinstance(error.__cause__, DecodeError) and error.__cause__.reason == "too_large":
            raise ProblemError("too-large", error.__cause__.detail, code="too_large", **of_refused) from error
        # The content of the body or of a header cannot be published.
        raise ProblemError("bad-parameter", str(error)) from error


def not_published(
    word: str, sentence: str, unpublished: Sequence[str | None], ids: Sequence[str | None] = ()
) -> ProblemError:
    """Returns the problem that some of these frames may not be on the log."""
    published = [one for one in ids if one not in unpublished]
    return ProblemError(word, sentence, published=published, unpublished=list(unpublished))
