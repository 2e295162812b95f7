"""Initial schema: the archive of frames, the tables folded from it, their progress, and functions and views to read."""

from collections.abc import Sequence
from pathlib import Path

from alembic import op

revision = "0001"
down_revision = None
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None

SQL = Path(__file__).parents[1] / "sql" / revision

# Each file makes one thing. Later ones use earlier ones.
STEPS = (
    "server",
    "roles",
    "frameledger_schema",
    # What happened, and what is true now.
    "frames",
    "messages",
    "eras",
    "context_settings",
    "contexts",
    "runs",
    "tool_calls",
    # How the projector works.
    "outbox",
    "topics",
    "projections",
    "rejected_frames",
    # How the archive is kept.
    "outcome_changes",
    "erasures",
    "keep_frames",
    "settle_outcome",
    "erase",
    "verify_chain",
    # Time travel.
    "era_at",
    "setting_at",
    "version_at",
    "messages_at",
    "context_at",
    "context_at_time",
    "context_diff",
    # For people.
    "excerpt",
    "conversations",
    "transcript",
    "timeline",
    "turns",
    "interruptions",
    "parked",
    "lag",
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
