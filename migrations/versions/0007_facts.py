"""Facts: views for programs, with times, numbers and whole texts; and prices."""

from collections.abc import Sequence
from pathlib import Path

from alembic import op

revision = "0007"
down_revision = "0006"
compatible_from = "0006"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None

SQL = Path(__file__).parents[1] / "sql" / revision

# Each file makes or changes one thing. Later ones use earlier ones.
STEPS: tuple[str, ...] = (
    "prices",
    "indexes",
    "facts_runs",
    "facts_calls",
    "facts_messages",
    "facts_turns",
    "facts_conversations",
    "facts_grants",
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
