"""Measures queries on large tables: `python -m tests.bench.facts`, run by `make bench`.

FACTS_RUNS=1000000 creates a million runs and ten million frames, which takes minutes and gigabytes of disk. The default
is a tenth of that. Every query of the first day in `infra/queries.md` has a limit of a second, and every view with
conversations, queried for one of them, a limit of 20 milliseconds.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter

import psycopg
from rich.console import Console
from tests.support import many_runs

from frameledger_services.bench.report import Figure, as_table
from frameledger_services.embedded import postgres
from frameledger_services.store import migration

RUNS = 100_000
ROUNDS = 5
DAY_MS, CONVERSATION_MS = 1_000.0, 20.0
PAGE = Path(__file__).resolve().parents[2] / "infra" / "queries.md"
NAMES_CONVERSATIONS = """
SELECT viewname::text
FROM pg_views INNER JOIN information_schema.columns ON table_name = viewname
WHERE schemaname = 'public' AND column_name = 'context_id'
ORDER BY viewname
"""


def questions() -> list[tuple[str, str]]:
    """Returns the queries of the first day, each with its text on the page."""
    section = PAGE.read_text(encoding="utf-8").split("## The first day")[1].split("\n## ")[0]
    parts = re.split(r"```sql\n(SELECT.*?)```", section, flags=re.DOTALL)
    named = (re.split("[:,.]", before.strip().split("\n\n")[-1])[0] for before in parts[::2])
    return list(zip(named, parts[1::2], strict=False))


def measured(connection: psycopg.Connection, runs: int) -> list[Figure]:
    """Returns all figures, without the first run of each query: afterwards that day is in memory, as today usually
    is."""

    def ask(query: str, *parameters: object) -> Callable[[], object]:
        return lambda: connection.execute(query, parameters or None).fetchall()

    figures = [held(said, timed(ask(query)), DAY_MS) for said, query in questions()]
    one = many_runs.context_id(runs // many_runs.TURNS // 2)
    for (view,) in connection.execute(NAMES_CONVERSATIONS).fetchall():
        query = f"SELECT * FROM {view} WHERE context_id = %s"
        figures.append(held(f"{view} of one conversation", timed(ask(query, one)), CONVERSATION_MS))
    return figures


def timed(ask: Callable[[], object]) -> list[float]:
    """Milliseconds."""
    ask()
    times = []
    for _ in range(ROUNDS):
        began = perf_counter()
        ask()
        times.append(1000 * (perf_counter() - began))
    return times


def held(name: str, times: list[float], goal: float) -> Figure:
    value = median(times)
    spread = min(times) / goal, max(times) / goal
    return Figure(name, value, "ms", goal, value / goal, 1.0, "at most", spread)


def main() -> int:
    """Measure, and print a table. Returns the exit code: 1 if a goal is missed."""
    runs = int(os.environ.get("FACTS_RUNS", RUNS))
    with (
        tempfile.TemporaryDirectory() as folder,
        postgres.running(Path(folder), settings={"fsync": "off", "max_wal_size": "8GB"}) as server,
    ):
        migration.migrate(server.dsn)
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            began = perf_counter()
            many_runs.fill(connection, runs)
            connection.execute("VACUUM ANALYZE")
            print(
                f"{runs:,} runs and {runs * many_runs.FRAMES:,} frames, made in {perf_counter() - began:.0f} s",
                flush=True,
            )
            figures = measured(connection, runs)
    Console().print(as_table(figures))
    return 0 if all(figure.ok for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
