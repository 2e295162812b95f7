"""Copied questions say so, and no run costs less than nothing."""

from collections.abc import Sequence
from pathlib import Path

from alembic import op

revision = "0032"
down_revision = "0031"
compatible_from = "0006"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None

SQL = Path(__file__).parents[1] / "sql" / revision

STEPS: tuple[str, ...] = ("facts_runs", "facts_turns", "comments")


def upgrade() -> None:
    for step in STEPS:
        statements = (SQL / f"{step}.sql").read_text(encoding="utf-8").rstrip(";\n")
        # A colon would begin a parameter.
        op.execute(statements.replace(":", r"\:"))


def downgrade() -> None:
    raise NotImplementedError(
        "the archive is not taken down by a migration: drop the database if you mean it"
    )
