"""Work: workers and claims, the queries of the timekeeper, and views of runs, calls and workers."""

from collections.abc import Sequence
from pathlib import Path

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None

SQL = Path(__file__).parents[1] / "sql" / revision

# Each file makes or changes one thing. Later ones use earlier ones.
STEPS = (
    # Who works: the only tables that workers write.
    "workers",
    "claims",
    # What is folded.
    "tool_calls",
    "contexts",
    "runs",
    "erase",
    # For people.
    "seconds",
    "run_history",
    "token_usage",
    "latency",
    "tool_call_history",
    "waiting",
    "ambiguous_calls",
    "live_workers",
    "services",
    "offered_functions",
    "tools_on_offer",
    "grants",
)


def upgrade() -> None:
    for step in STEPS:
        statements = (SQL / f"{step}.sql").read_text(encoding="utf-8").rstrip(";\n")
        # A colon would begin a parameter.
        op.execute(statements.replace(":", r"\:"))


def downgrade() -> None:
    raise NotImplementedError(
        "the archive is not taken down by a migration: drop the database if you mean it"
    )
