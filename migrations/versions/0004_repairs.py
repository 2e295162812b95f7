"""Repairs: tables and functions that a review of failovers, erasures and rebuilds found missing."""

from collections.abc import Sequence
from pathlib import Path

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None

SQL = Path(__file__).parents[1] / "sql" / revision

# Each file makes or changes one thing. Later ones use earlier ones.
STEPS: tuple[str, ...] = (
    "runs_usage_partial",
    "token_usage",
    "call_deadlines",
    "held_effects",
    "frames_unknown",
    "claims",
    "claims_untried",
    "runs",
    "tool_calls",
    "frames_by_offset",
    "runs_refused",
    "crashes",
    "erase",
    "comments",
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
