"""The declaration of all tables: columns, keys, indexes, and a comment on every column.

The migrations create the tables; a test compares both. Everything that belongs to a conversation is keyed by its
context first, so that the tables can be partitioned and distributed by context. Identifiers sort by their bytes
(collation `C`), so that no change of the system's locales can corrupt an index.
"""

from frameledger_services.store.tables.audits import erasures, outcome_changes, rebuilds, verified
from frameledger_services.store.tables.columns import metadata
from frameledger_services.store.tables.conversations import context_settings, contexts, eras, frames, messages
from frameledger_services.store.tables.event_log import (
    outbox,
    projections,
    recoveries,
    rejected_frames,
    topics,
)
from frameledger_services.store.tables.runs_and_calls import prices, runs, tool_calls
from frameledger_services.store.tables.workers import claims, workers

__all__ = [
    "claims",
    "context_settings",
    "contexts",
    "eras",
    "erasures",
    "frames",
    "messages",
    "metadata",
    "outbox",
    "outcome_changes",
    "prices",
    "projections",
    "rebuilds",
    "recoveries",
    "rejected_frames",
    "runs",
    "tool_calls",
    "topics",
    "verified",
    "workers",
]
