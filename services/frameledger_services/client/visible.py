"""Waiting until published frames are in the tables, through a database that is away for a while."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from frameledger.frames import AnyFrame
from frameledger_services.client import published
from frameledger_services.client.errors import NotVisibleError
from frameledger_services.client.projected import Projected
from frameledger_services.client.published import Published
from frameledger_services.store.connections import Connections, DatabaseError, DatabaseUnavailableError
from frameledger_services.store.schema import SchemaError

PAUSE_SECONDS = 0.25
"""Before a database that is away is asked again."""

_NOT_ASKED = "the database has not answered yet."


async def until_visible(
    connections: Connections,
    projected: Projected,
    context_id: str,
    found: Sequence[Published],
    frames: Sequence[AnyFrame],
    *,
    deadline: float,
) -> tuple[Published, ...]:
    """What became of frames of one conversation, once the tables have all of them. `deadline` is in the loop's time.

    Raises `NotVisibleError` at the deadline, and at once when the database says what waiting does not mend.
    """
    last = max(found, key=lambda one: one.offset)
    progress = _NOT_ASKED
    bound = asyncio.timeout_at(deadline)
    try:
        async with bound:
            # Not looked for before that: the look would meet the frame in the database, and hold it up.
            await projected.passed(last, within=deadline - asyncio.get_running_loop().time())
            while True:
                signal = projected.signal()
                try:
                    reached, stored = await connections.read(published.reached, context_id, found)
                    if reached is not None and reached > last.offset:
                        return await connections.read(published.outcomes, found, stored)
                except DatabaseUnavailableError as error:
                    progress = f"the database does not answer: {error}"
                    await asyncio.sleep(PAUSE_SECONDS)
                else:
                    progress = _progress(reached, last)
                    await projected.wait(signal)
    except TimeoutError as error:
        if not bound.expired():
            raise
        raise NotVisibleError(_not_visible(last, "in time", progress), found, frames) from error
    except (DatabaseError, SchemaError) as error:
        raise NotVisibleError(_not_visible(last, "as far as we see", str(error)), found, frames) from error


def _progress(reached: int | None, last: Published) -> str:
    if reached is None:
        return "no projector has ever read that partition. Is one running (`frameledger status`)?"
    return (
        f"the projector has come to offset {reached}, {last.offset + 1 - reached} records before. Is it running "
        "(`frameledger status`)?"
    )


def _not_visible(last: Published, how: str, why: str) -> str:
    return (
        f"Published, but not in the tables {how}: the last frame lies at offset {last.offset} of {last.topic}, "
        f"partition {last.partition}, and {why} What is published gets there, or is rejected; to publish it again is "
        "needless and harmless, if it is with `frames` of this error."
    )
