"""Publishes a root over all conversations at an interval, on a connection of its own, so that no sweep and no heartbeat
waits for it."""

from __future__ import annotations

import asyncio

import psycopg

from frameledger.errors import FrameledgerError
from frameledger_services import logs, supervision, transient
from frameledger_services.audit import roots
from frameledger_services.event_log.producer import Producer
from frameledger_services.settings import Settings

SHORTEST_SECONDS = 0.05
"""Seconds between two checks of whether a root is due."""

_FAILURES: tuple[type[Exception], ...] = (*transient.EITHER, FrameledgerError, psycopg.Error)

_log = logs.get_logger("timekeeper")


async def keep_publishing(settings: Settings, stopping: asyncio.Event) -> None:
    """Publish a root every `timekeeper_root_every_secs` until `stopping` is set. If there are several timekeepers,
    usually one publishes it.

    Every failure is logged and retried after a pause, because it must not stop the settling of overdue work.
    """
    every = settings.timekeeper_root_every_secs
    backoff = supervision.Backoff()
    async with Producer(settings, name="frameledger-roots") as producer:
        while not stopping.is_set():
            try:
                turn = await roots.publish_if_due(settings, producer, every)
            except _FAILURES as error:
                again_in = backoff.next()
                _log.warning("timekeeper.root_failed", reason=transient.reason(error), again_in=again_in)
            else:
                backoff.reset()
                again_in = max(turn.again_in, SHORTEST_SECONDS)
                if turn.published is not None:
                    root = turn.published
                    _log.info("timekeeper.root_published", root=root.hash.hex(), leaves=root.leaf_count)
            await supervision.pause(stopping, again_in)
