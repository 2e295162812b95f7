"""Upgrades without downtime: the schema names the oldest release that works with it."""

from collections.abc import Sequence
from pathlib import Path

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None
# Releases before this one work with the tables that they know, and no others.
compatible_from = "0006"

SQL = Path(__file__).parents[1] / "sql" / revision

STEPS: tuple[str, ...] = ("frameledger_schema",)


def upgrade() -> None:
    for step in STEPS:
        statements = (SQL / f"{step}.sql").read_text(encoding="utf-8").rstrip(";\n")
        # A colon would begin a parameter.
        op.execute(statements.replace(":", r"\:"))


def downgrade() -> None:
    raise NotImplementedError(
        "the archive is not taken down by a migration: drop the database if you mean it"
    )
