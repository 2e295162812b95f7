"""A conversation as it stands when somebody wants to ask something: its context, whether it is free, who asked last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from frameledger_services.database_types import Connection
from frameledger_services.store import contexts, conversations
from frameledger_services.store.contexts import NoSuchContextError, StoredContext

ASKING = ("LLMMessagesAppendFrame", "LLMMessagesUpdateFrame", "LLMRunFrame", "LLMContextFrame")
"""Frames by which clients ask for an answer."""

REQUEST = "chat_completion"
"""In the metadata of a frame that was published for a request: which one."""


@dataclass(frozen=True, slots=True)
class Readiness:
    """How a conversation stands. `stored` is None if there is none."""

    stored: StoredContext | None
    cut_runs: frozenset[str] = frozenset()
    """Runs that were interrupted, or failed, and that some message is of."""

    is_recording: bool = False
    """Nobody answers: it is a recording, or another program keeps its history."""

    goes_on: bool = False
    """A run is open, or a call that the conversation waits for."""

    @property
    def version(self) -> int:
        return 0 if self.stored is None else int(self.stored.version)


@dataclass(frozen=True, slots=True)
class Question:
    """A frame that asked for an answer."""

    version: int
    metadata: Mapping[str, Any]
    answered_version: int | None
    """The version that announced the call which it answers, if it is a result."""

    newest_run: str | None
    """The status of the newest run of its conversation."""

    is_newest: bool
    """Nothing was asked after it."""


async def readiness(connection: Connection, context_id: str) -> Readiness:
    """Returns how a conversation stands, at one moment."""
    async with connection.transaction():
        try:
            stored = await contexts.context(connection, context_id)
        except NoSuchContextError:
            return Readiness(None)
        runs = {one.removeprefix("run ") for one in stored.answers if one and one.startswith("run ")}
        cursor = await connection.execute(_READINESS, {"id": context_id, "runs": list(runs)})
        [(recording, cut)] = await cursor.fetchall()
        goes_on, _ = await conversations.goes_on(connection, context_id)
    return Readiness(stored, frozenset(cut), recording, goes_on)


async def asked_by(
    connection: Connection, context_id: str, frame_ids: Sequence[UUID]
) -> tuple[int, Question | None]:
    """Returns how many frames of these ids are stored, and the newest of them that counts."""
    parameters = {"id": context_id, "frames": list(frame_ids), "asking": list(ASKING)}
    cursor = await connection.execute(
        "SELECT count(*) FROM frames WHERE context_id = %(id)s AND frame_id = ANY (%(frames)s)", parameters
    )
    [(count,)] = await cursor.fetchall()
    cursor = await connection.execute(
        f"{_QUESTION} AND asked.frame_id = ANY (%(frames)s) ORDER BY asked.version DESC LIMIT 1", parameters
    )
    return int(count), _read(await cursor.fetchone())


async def last_asked(connection: Connection, context_id: str) -> Question | None:
    """Returns what clients asked last; None if they asked nothing. It reads the conversation's frames backwards."""
    cursor = await connection.execute(
        f"{_QUESTION} AND {_asks('asked')} ORDER BY asked.version DESC LIMIT 1",
        {"id": context_id, "asking": list(ASKING)},
    )
    return _read(await cursor.fetchone())


def _read(row: tuple[Any, ...] | None) -> Question | None:
    if row is None:
        return None
    version, payload, newest_run, is_newest = row
    frame = contexts.loads(payload)
    metadata, answered = frame.get("metadata"), frame.get("opened_version")
    return Question(
        version,
        metadata if isinstance(metadata, dict) else {},
        answered if isinstance(answered, int) else None,
        newest_run,
        is_newest,
    )


async def has_running_calls(connection: Connection, context_id: str) -> bool:
    """Returns whether a call runs, or is about to, also one in the background; one that waits does not."""
    cursor = await connection.execute(
        """
        SELECT EXISTS (
            SELECT FROM tool_calls
            WHERE context_id = %s AND status IN ('announced', 'dispatched', 'running')
        )
        """,
        (context_id,),
    )
    [(does,)] = await cursor.fetchall()
    return bool(does)


_READINESS = """
    SELECT
        recording OR setting_at(context_id, 'mirror', version) #>> '{}' IS NOT NULL,
        ARRAY(
            SELECT run_id FROM runs
            WHERE runs.context_id = head.context_id AND run_id = ANY (%(runs)s)
                AND status IN ('interrupted', 'failed', 'context_ended')
        )
    FROM contexts AS head
    WHERE context_id = %(id)s
"""


def _asks(frame: str) -> str:
    """SQL: whether a client asked for an answer by this frame; by a result, too, that it says in a request.

    It is not enough that a result has the word: a service's may be about this API.
    """
    return f"""(
        {frame}.type = ANY (%(asking)s)
        OR {frame}.type = 'FunctionCallResultFrame'
            AND json_text(json_text({frame}.payload, 'metadata')::json, '{REQUEST}') IS NOT NULL
    )"""


_QUESTION = f"""
    SELECT
        asked.version,
        asked.payload::text,
        (
            SELECT status FROM runs
            WHERE context_id = asked.context_id AND requested_version >= asked.version
            ORDER BY requested_version DESC
            LIMIT 1
        ),
        NOT EXISTS (
            SELECT FROM frames AS later
            WHERE later.context_id = asked.context_id AND later.version > asked.version
                AND {_asks("later")} AND later.outcome = 'applied'
        )
    FROM frames AS asked
    WHERE asked.context_id = %(id)s AND asked.outcome = 'applied'
"""
