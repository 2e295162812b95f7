"""Audit: tables, functions and views for explanations, proofs, forks and reruns."""

from collections.abc import Sequence
from pathlib import Path

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None

SQL = Path(__file__).parents[1] / "sql" / revision

# Each file makes or changes one thing. Later ones use earlier ones.
STEPS: tuple[str, ...] = (
    "frames",
    "frames_partition",
    "causes",
    "contexts",
    "rebuilds",
    "verified",
    "erasures",
    "places_on_log",
    "delete_conversation",
    "erase_at",
    "erase",
    "version_at",
    "context_at",
    "contexts_origin",
    "conversations",
    "forks",
    "experiments",
    "forks_grants",
    "json_text",
    "short_id",
    "timeline_of",
    "frame_as_json",
    "explain_run",
    "explain_call",
    "heard_for",
    "explain_message",
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
