"""Stops the second of two projectors with the same instance id (Kafka's `group.instance.id`).

Kafka gives a static member's partitions at once to the next process with its id, without waiting for the session
timeout of a killed one. If the former process is alive, it joins again and takes them back: the two would replace each
other for ever. So each process checks, before it joins and before it takes partitions over, whether another one with
its id owns partitions and has a session on the database. If so, that one continues.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from frameledger.errors import FencedError
from frameledger_services import logs
from frameledger_services.database_types import Connection
from frameledger_services.event_log.consumer import SESSION_MS
from frameledger_services.store import projections

WAIT_SECONDS = SESSION_MS / 1000
"""How long to wait for the other process to end: Kafka's session timeout. The database session of a killed process ends
within milliseconds."""

RETRY_SECONDS = 0.1

_log = logs.get_logger("projector")


class DuplicateInstanceError(FencedError):
    """Another projector with our instance id is connected, and owns partitions.

    Remedy: Give each projector a name of its own (`FRAMELEDGER_PROJECTOR_INSTANCE_ID`), or end the other one.
    """


@dataclass(frozen=True, slots=True)
class Instance:
    """A projector: its place, which is unique to the process, and its instance id, if it has one (`name`)."""

    place: str
    name: str | None = None

    @property
    def owner(self) -> str:
        """The value for `projections.owner`. A name has no spaces."""
        return self.place if self.name is None else f"{self.name} {self.place}"


async def check(connection: Connection, topic: str, instance: Instance) -> None:
    """Raise `DuplicateInstanceError` if a partition belongs to another instance of this name that has a session."""
    if instance.name is None:
        return
    duplicate = await projections.duplicate_instance(connection, topic, instance.name, instance.owner)
    if duplicate is not None:
        owner, pid = duplicate
        raise DuplicateInstanceError(
            f"Another projector is connected under the name {instance.name}: {owner.partition(' ')[2]}, process {pid} "
            "of the database. Give each its own name (FRAMELEDGER_PROJECTOR_INSTANCE_ID), or end that one; if it is "
            f"frozen, `SELECT pg_terminate_backend({pid})` ends its session."
        )


async def wait(connection: Connection, topic: str, instance: Instance, stopping: asyncio.Event) -> None:
    """Wait until no other instance has this name, or `stopping` is set. Raises `DuplicateInstanceError`."""
    loop = asyncio.get_running_loop()
    deadline, is_logged = loop.time() + WAIT_SECONDS, False
    while not stopping.is_set():
        try:
            await check(connection, topic, instance)
        except DuplicateInstanceError as error:
            if loop.time() > deadline:
                raise
            if not is_logged:
                _log.warning("projector.name_taken", reason=str(error), at_most=WAIT_SECONDS)
                is_logged = True
        else:
            return
        await asyncio.sleep(RETRY_SECONDS)
