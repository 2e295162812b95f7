"""Waiting until published frames are in the tables, also through an outage of the database."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from frameledger.frames import AnyFrame
from frameledger_services.client import outcomes
from frameledger_services.client.errors import NotVisibleError
from frameledger_services.client.notifications import POLL_SECONDS, Notifications
from frameledger_services.client.outcomes import PublishedFrame
from frameledger_services.store.connections import Connections, DatabaseError, DatabaseUnavailableError
from frameledger_services.store.schema import SchemaError


async def until_stored(
    connections: Connections,
    notifications: Notifications,
    context_id: str,
    published: Sequence[PublishedFrame],
    frames: Sequence[AnyFrame],
    *,
    deadline: float,
) -> tuple[PublishedFrame, ...]:
    """Returns the frames with their outcomes, once all of them are in the tables. They are of one conversation;
    `deadline` is in the event loop's time.

    Raises `NotVisibleError` at the deadline, and at once for an error of the database that is not transient.
    """
    if not published:
        return ()
    last = max(published, key=lambda one: one.offset)
    progress = "the database has not answered yet."
    bound = asyncio.timeout_at(deadline)
    try:
        async with bound:
            # The first query waits for this: earlier it would compete with the projector for the database.
            await notifications.until_passed(last, within=deadline - asyncio.get_running_loop().time())
            while True:
                mark = notifications.mark(last.topic, last.partition)
                try:
                    reached, stored = await connections.read(outcomes.reached, context_id, published)
                    if reached is not None and reached > last.offset:
                        return await connections.read(outcomes.outcomes, context_id, published, stored)
                except DatabaseUnavailableError as error:
                    progress = f"the database does not answer: {error}"
                    await asyncio.sleep(POLL_SECONDS)
                else:
                    progress = _progress(reached, last)
                    await notifications.until_moved(last.topic, last.partition, mark, often=True)
    except TimeoutError as error:
        if not bound.expired():
            raise
        raise NotVisibleError(_not_visible(last, "in time", progress), published, frames) from error
    except (DatabaseError, SchemaError) as error:
        raise NotVisibleError(
            _not_visible(last, "as far as is known", f"the query failed: {error}"),
            published,
            frames,
        ) from error


def _progress(reached: int | None, last: PublishedFrame) -> str:
    if reached is None:
        return "no projector has ever read that partition. Is one running (`frameledger status`)?"
    return (
        f"the projector has reached offset {reached}, with {last.offset + 1 - reached} still to store. Is it running "
        "(`frameledger status`)?"
    )


def _not_visible(last: PublishedFrame, how: str, why: str) -> str:
    return (
        f"Published, but not in the tables {how}: the last frame is at offset {last.offset} of {last.topic}, "
        f"partition {last.partition}, and {why} Published frames are stored later, or rejected. They need not be "
        "published again; under the same ids that is harmless."
    )
