"""Mirrors: messages that clients rewrite, and histories that other programs keep."""

from collections.abc import Sequence
from pathlib import Path

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None
# Releases before this one work with the functions as they are now, too.
compatible_from = "0006"

SQL = Path(__file__).parents[1] / "sql" / revision

# Each file makes or changes one thing. Later ones use earlier ones.
STEPS: tuple[str, ...] = (
    "context_settings",
    "timeline_of",
    "heard_for",
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
