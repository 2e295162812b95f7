"""A simple projector of one conversation: folds values and writes the rows with one INSERT each.

It is slow and has no guarantees. It writes the rows that the real projector has to write, so tests compare the two.
"""

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any
from uuid import UUID, uuid5

import psycopg
from psycopg import sql

from frameledger import stored
from frameledger.evolve import changes
from frameledger.fold import Conversation, Folding
from frameledger.frames import LLMContextFrame
from frameledger.record import DecodeError, decode
from frameledger_services.store.valid_to import FOR_EVER

BEGINNING = datetime(2026, 3, 4, 9, 0, tzinfo=UTC)
# What a JSON string may hold and a text column may not.
UNTEXT = re.compile("[\x00\ud800-\udfff]")
NAMESPACE = UUID("5f4f4c1b-6c1c-5d6c-8f0f-0a4b2c1d3e5f")


def write(
    connection: psycopg.Connection, context_id: str, values: Sequence[bytes], *, seconds: float = 1.0
) -> list[dict[str, Any]]:
    """Store and fold the values that are frames. Returns the contexts at version 0, 1, 2 ... by the fold.

    The frames are logged `seconds` apart. Sources alternate between none and some, since the hash chain has both.
    """
    folding = Folding(Conversation.new(context_id))
    expected = [folding.conversation().context.to_wire()]
    head = {"chain": sha256(context_id.encode()).digest(), "run_version": 0, "parts": {}}
    messages: dict[tuple[int, int, int], dict[str, Any]] = {}
    logged_at = BEGINNING
    with connection.transaction(), connection.cursor() as cursor:
        for offset, value in enumerate(values):
            try:
                frame = decode(value)
            except DecodeError:
                continue
            step = folding.step(frame)
            if step is None:
                continue
            version = step.state.version
            logged_at = BEGINNING + timedelta(seconds=seconds * version)
            source = f"test/{offset}" if offset % 2 else None
            head["chain"] = link(head["chain"], version, source, value)
            insert(
                cursor,
                "frames",
                context_id=context_id,
                version=version,
                frame_id=uuid5(NAMESPACE, frame.id or f"{context_id}:{offset}"),
                logged_at=logged_at,
                offset=offset,
                partition=0,
                type=frame.type,
                outcome=step.outcome,
                reason=step.reason,
                run_id=getattr(frame, "run_id", None),
                tool_call_id=getattr(frame, "tool_call_id", None),
                source=source,
                chain=head["chain"],
                payload=value.decode(),
            )
            for change in step.changes:
                _apply(cursor, context_id, frame, version, logged_at, change, messages, head)
            expected.append(folding.conversation().context.to_wire())
        for row in messages.values():
            if row["valid_to"] > row["valid_from"]:
                insert(cursor, "messages", **row)
        state = folding.state
        if state.version:
            insert(
                cursor,
                "contexts",
                context_id=context_id,
                version=state.version,
                state_version=state.version,
                run_version=head["run_version"],
                started_at=BEGINNING + timedelta(seconds=seconds),
                last_at=logged_at,
                fold_version=stored.FOLD_VERSION,
                era=state.place.era,
                message_count=len(folding.messages),
                open_call_count=len(state.calls.open),
                recording=state.terms.recording,
                ended=state.terms.ended,
                **head.get("origin", {}),
                open_run_id=None if state.runs.open is None else state.runs.open.run_id,
                chain=head["chain"],
                state=stored.dump(state).decode(),
            )
    return expected


def link(before: bytes, version: int, source: str | None, value: bytes) -> bytes:
    """Returns the next link of the hash chain."""
    said = (source or "").encode()
    length = -1 if source is None else len(said)
    numbers = version.to_bytes(8, "big") + length.to_bytes(4, "big", signed=True)
    return sha256(before + numbers + said + value).digest()


def insert(cursor: psycopg.Cursor, table: str, **row: Any) -> None:
    cursor.execute(
        sql.SQL("INSERT INTO {} ({}) VALUES ({})").format(
            sql.Identifier(table),
            sql.SQL(", ").join(map(sql.Identifier, row)),
            sql.SQL(", ").join([sql.Placeholder()] * len(row)),
        ),
        list(row.values()),
    )


def _origin(frame: LLMContextFrame) -> dict[str, Any]:
    """Returns the origin of a context, as `contexts` stores it."""
    columns: dict[str, Any] = {}
    if frame.forked_from is not None:
        columns["origin"] = json.dumps(frame.forked_from.model_dump())
    if "experiment" in frame.metadata:
        columns["experiment"] = bool(frame.metadata["experiment"])
    return columns


def _apply(cursor, context_id, frame, version, logged_at, change, messages, head):
    """Write the rows of a step. Messages are collected in `messages` until the end, so that each row is written once,
    with both ends of its validity."""
    match change:
        case changes.EraBegan():
            insert(cursor, "eras", context_id=context_id, valid_from=version, era=change.era)
            head["era"] = change.era
            head["parts"] = {}
            if isinstance(frame, LLMContextFrame):
                head.setdefault("origin", {}).update(_origin(frame))
        case changes.MessageAppended():
            head["parts"][change.position] = version, change.run_id
            _keep(
                messages, context_id, head, change.position, version, change.message, change.run_id, logged_at
            )
        case changes.MessageReplaced() | changes.MessageEnded():
            since, run_id = head["parts"].pop(change.position)
            messages[head.get("era", 1), change.position, since]["valid_to"] = version
            if isinstance(change, changes.MessageReplaced):
                head["parts"][change.position] = version, run_id
                _keep(messages, context_id, head, change.position, version, change.message, run_id, logged_at)
        case changes.SettingChanged():
            insert(
                cursor,
                "context_settings",
                context_id=context_id,
                name=change.name,
                valid_from=version,
                value=json.dumps(change.value),
            )
        case changes.RunRequested():
            cursor.execute(
                "INSERT INTO runs (context_id, run_id, requested_version, requested_at, trigger, status) "
                "VALUES (%s, %s, %s, %s, %s, 'requested') ON CONFLICT DO NOTHING",
                (context_id, change.run_id, version, logged_at, frame.type),
            )
        case changes.RunOpened():
            head["run_version"] = version
            cursor.execute(
                "UPDATE runs SET status = 'open', opened_version = %s, opened_at = %s "
                "WHERE context_id = %s AND run_id = %s",
                (version, logged_at, context_id, change.run_id),
            )
        case changes.RunStarted():
            cursor.execute(
                "UPDATE runs SET started_at = %s, first_text_at = %s, attempt = %s "
                "WHERE context_id = %s AND run_id = %s",
                (logged_at, logged_at, change.attempt, context_id, change.run_id),
            )
        case changes.RunClosed():
            cursor.execute(
                "UPDATE runs SET status = %s, closed_version = %s, closed_at = %s "
                "WHERE context_id = %s AND run_id = %s",
                (change.end, version, logged_at, context_id, change.run_id),
            )


def _keep(messages, context_id, head, position, version, message, run_id, said_at):
    era = head.get("era", 1)
    messages[era, position, version] = {
        "context_id": context_id,
        "era": era,
        "position": position,
        "valid_from": version,
        "valid_to": FOR_EVER,
        "role": message.get("role"),
        "text": UNTEXT.sub("\ufffd", said) if isinstance(said := message.get("content"), str) else None,
        "run_id": run_id,
        "message": json.dumps(message),
        "said_at": said_at,
    }
