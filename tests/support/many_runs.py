"""Fills tables with millions of conversations by COPY, without a projector, to measure queries.

A conversation has ten turns of ten frames each; its first frame sets a system prompt and settings. The conversations
begin one after another over thirty days, so the rows are on disk roughly in the order of their times, like those that
a projector writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import LiteralString

import psycopg

from frameledger_services.store.valid_to import FOR_EVER

DAYS = 30
FIRST = datetime(2026, 2, 17, tzinfo=UTC)
"""The thirty days have March 4, the day of the queries in `infra/queries.md`, in the middle."""

TURNS, FRAMES = 10, 10
"""Of a conversation, and of a turn."""

MODELS = ("meadow-2", "meadow-2-mini", "hill-1")
FUNCTIONS = ("get_weather", "get_traffic", "pay")
CHAIN = "\\\\x" + "5a" * 32
ANSWER = (
    "There are two concerts tonight: a brass band at seven, and a jazz trio at nine in the old boat house."
)
TYPES = (
    *(
        "UserStartedSpeakingFrame",
        "TranscriptionFrame",
        "UserStoppedSpeakingFrame",
        "LLMFullResponseStartFrame",
    ),
    *("LLMTextFrame", "LLMTextFrame", "LLMTextFrame", "LLMTextFrame"),
    *("LLMFullResponseEndFrame", "BotStoppedSpeakingFrame"),
)
PAYLOADS = (
    '{"type":"UserStartedSpeakingFrame"}',
    '{"type":"TranscriptionFrame","text":"What is on at the harbour tonight?","language":"en"}',
    '{"type":"UserStoppedSpeakingFrame"}',
    '{"type":"LLMFullResponseStartFrame","model":"meadow-2"}',
    *(['{"type":"LLMTextFrame","text":"There are two concerts tonight, and a walk "}'] * 4),
    '{"type":"LLMFullResponseEndFrame","finish_reason":"stop"}',
    '{"type":"BotStoppedSpeakingFrame"}',
)
PROMPT = "You are the information desk of a harbour."
OPENING = (
    f'{{"type":"LLMContextFrame","context":{{"messages":[{{"role":"system","content":"{PROMPT}"}}],'
    '"settings":{"temperature":0.5}}}'
)
ROWS_AT_ONCE = 2_000


def context_id(number: int) -> str:
    """Returns the id of the conversation with this number, from 0."""
    return f"b7e1d2c4-0000-4000-8000-{number:012d}"


def fill(connection: psycopg.Connection, runs: int) -> None:
    """Fill an empty, migrated database with this many runs, and ten times as many frames."""
    conversations = range(max(1, runs // TURNS))
    every = timedelta(days=DAYS) / len(conversations)
    for copy, rows in (
        (COPY_CONTEXTS, _contexts),
        (COPY_FRAMES, _frames),
        (COPY_MESSAGES, _messages),
        (COPY_SETTINGS, _settings),
        (COPY_RUNS, _runs),
        (COPY_CALLS, _calls),
    ):
        _copy(connection, copy, conversations, every, rows)
    connection.execute(
        "INSERT INTO prices (model, valid_from, input, output, cache_read, currency) "
        "SELECT unnest(%s::text[]), since, 1, 4, 0.25, 'EUR' "
        "FROM (VALUES ('-infinity'::timestamptz), ('2026-03-01Z')) AS held (since)",
        (list(MODELS),),
    )


_Rows = Callable[[int, datetime], Iterable[str]]

COPY_CONTEXTS: LiteralString = (
    "COPY contexts (context_id, version, state_version, run_version, started_at, last_at, fold_version, message_count, "
    "run_count, call_count, interruption_count, chain, state) FROM STDIN"
)
COPY_FRAMES: LiteralString = (
    'COPY frames (context_id, version, frame_id, logged_at, recorded_at, "offset", partition, type, outcome, run_id, '
    "source, chain, payload) FROM STDIN"
)
COPY_MESSAGES: LiteralString = (
    "COPY messages (context_id, era, position, valid_from, valid_to, role, text, run_id, message, said_at) "
    "FROM STDIN"
)
COPY_SETTINGS: LiteralString = "COPY context_settings (context_id, name, valid_from, value) FROM STDIN"
COPY_RUNS: LiteralString = (
    "COPY runs (context_id, run_id, requested_version, opened_version, started_version, closed_version, heard_version, "
    "requested_at, opened_at, started_at, first_text_at, closed_at, input_tokens, output_tokens, cache_read_tokens, "
    "attempt, trigger, status, provider, model, finish_reason, said, error_code, error) FROM STDIN"
)
COPY_CALLS: LiteralString = (
    "COPY tool_calls (context_id, requested_version, ordinal, requested_at, started_at, settled_at, started_version, "
    "settled_version, tool_call_id, function_name, status, run_id, arguments, result) FROM STDIN"
)


def _copy(
    connection: psycopg.Connection, statement: LiteralString, numbers: range, every: timedelta, rows: _Rows
) -> None:
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        lines: list[str] = []
        for number in numbers:
            lines += rows(number, FIRST + number * every)
            if len(lines) >= ROWS_AT_ONCE:
                copy.write("".join(lines))
                lines.clear()
        copy.write("".join(lines))


def _line(*values: object) -> str:
    return "\t".join("\\N" if value is None else str(value) for value in values) + "\n"


def _contexts(number: int, began: datetime) -> Iterator[str]:
    version = TURNS * FRAMES
    yield _line(
        *(context_id(number), version, version, version - 7, began, began + timedelta(seconds=10 * TURNS), 4),
        *(2 * TURNS + 1, TURNS, TURNS // 5, 1, CHAIN, "{}"),
    )


def _frames(number: int, began: datetime) -> Iterator[str]:
    name, version = context_id(number), 0
    for turn in range(TURNS):
        cut = _is_cut(number, turn)
        for place, (kind, payload) in enumerate(zip(TYPES, PAYLOADS, strict=True)):
            at, version = began + timedelta(seconds=10 * turn + place), version + 1
            if version == 1:
                kind, payload = "LLMContextFrame", OPENING
            if cut and place == 8:
                kind, payload = (
                    "InterruptionFrame",
                    '{"type":"InterruptionFrame","heard_text":"There are two"}',
                )
            run_id = _run_id(number, turn) if 3 <= place <= 8 and not (cut and place == 8) else "\\N"
            yield (
                f"{name}\t{version}\t{number:08x}-{version:04x}-4000-8000-{version:012x}\t{at}\t{at}\t"
                f"{number * 100 + version}\t0\t{kind}\tapplied\t{run_id}\tdesk\t{CHAIN}\t{payload}\n"
            )


def _messages(number: int, began: datetime) -> Iterator[str]:
    name = context_id(number)
    yield _line(
        *(name, 1, 1, 1, FOR_EVER, "system", PROMPT, None),
        f'{{"role":"system","content":"{PROMPT}"}}',
        began,
    )
    for turn in range(TURNS):
        first, position, run_id = turn * FRAMES, 2 * turn + 2, _run_id(number, turn)
        text = "What is on at the harbour tonight?"
        yield _line(
            *(name, 1, position, first + 3, FOR_EVER, "user", text, None),
            f'{{"role":"user","content":"{text}"}}',
            began + timedelta(seconds=10 * turn + 2),
        )
        text = "There are two" if _is_cut(number, turn) else ANSWER
        yield _line(
            *(name, 1, position + 1, first + 9, FOR_EVER, "assistant", text, run_id),
            f'{{"role":"assistant","content":"{text}"}}',
            began + timedelta(seconds=10 * turn + 8),
        )


def _settings(number: int, _began: datetime) -> Iterator[str]:
    yield _line(context_id(number), "settings", 1, '{"temperature":0.5}')


def _runs(number: int, began: datetime) -> Iterator[str]:
    for turn in range(TURNS):
        first, at = turn * FRAMES, began + timedelta(seconds=10 * turn)
        failed, cut = (number + turn) % 50 == 7, _is_cut(number, turn)
        status = "interrupted" if cut else "failed" if failed else "ended"
        waited = timedelta(milliseconds=300 + (number * 7 + turn * 131) % 1500)
        yield _line(
            *(
                context_id(number),
                _run_id(number, turn),
                first + 3,
                first + 3,
                first + 4,
                first + 9,
                first + 3,
            ),
            *(at + timedelta(seconds=2), at + timedelta(seconds=2), at + timedelta(seconds=3)),
            *(at + timedelta(seconds=2) + waited, at + timedelta(seconds=8)),
            *(
                1_000 + (number * 13 + turn) % 4_000,
                20 + number % 200,
                500,
                1,
                "UserStoppedSpeakingFrame",
                status,
            ),
            *(
                "scripted",
                MODELS[number % 3],
                None if cut else "error" if failed else "stop",
                ANSWER if cut else None,
            ),
            *(("rate_limited", "Too many requests.") if failed else (None, None)),
        )


def _calls(number: int, began: datetime) -> Iterator[str]:
    for turn in range(0, TURNS, 5):
        first, at = turn * FRAMES, began + timedelta(seconds=10 * turn + 4)
        status = "failed" if (number + turn) % 20 == 3 else "done"
        yield _line(
            *(context_id(number), first + 9, 0, at, at + timedelta(seconds=1), at + timedelta(seconds=2)),
            *(first + 9, first + 10, f"call_{number}_{turn}", FUNCTIONS[number % 3], status),
            *(_run_id(number, turn), '{"place":"Hochalm"}', '{"sky":"snow"}'),
        )


def _run_id(number: int, turn: int) -> str:
    return f"{number:08x}-{turn:04x}-5000-8000-000000000000"


def _is_cut(number: int, turn: int) -> bool:
    return (number + turn) % 10 == 0
