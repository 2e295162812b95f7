"""The tables `workers` and `claims`, which the workers themselves write."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Double,
    Index,
    Integer,
    PrimaryKeyConstraint,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY

from frameledger_services.store.tables.columns import (
    ID,
    JSON_TEXT,
    TIME,
    column,
    context_id,
    metadata,
    optional,
)

workers = Table(
    "workers",
    metadata,
    column("worker_id", ID, "One session of one process. A restarted process is a new worker."),
    column("started_at", TIME, "When the worker registered, by the database's clock.", "clock_timestamp()"),
    column(
        "connected_at",
        TIME,
        "When its current connection started. It declares other workers dead only after a whole lease.",
        "clock_timestamp()",
    ),
    column("heartbeat_at", TIME, "Time of its last heartbeat, by the database's clock.", "clock_timestamp()"),
    optional(
        "stopped_at",
        TIME,
        "When the worker deregistered, or its last heartbeat if it died; null while it may be alive.",
    ),
    column("lease_secs", Double, "Seconds after its last heartbeat at which it counts as dead."),
    column("slots", Integer, "Number of jobs that it runs concurrently."),
    column("pid", Integer, "The process id on that host."),
    column(
        "serves_all",
        Boolean,
        "True if it serves every function, or every model, that no live worker lists.",
        "false",
    ),
    column("service", ID, "The service that it belongs to. Workers of one service share their work."),
    column("kind", Text, "inference, functions, or timekeeper."),
    column("host", Text, "The host that it runs on."),
    column("serves", ARRAY(Text), "The functions or models that it serves, by name.", "'{}'"),
    column(
        "offers",
        JSON_TEXT,
        "The functions with their schemas and options, or the options of an inference service's requests.",
    ),
    PrimaryKeyConstraint("worker_id", name="workers_pkey"),
    CheckConstraint("kind IN ('inference', 'functions', 'timekeeper')", name="workers_kind_check"),
    CheckConstraint("lease_secs > 0", name="workers_lease_secs_check"),
    # Few rows, each updated twice a second.
    postgresql_with={
        "fillfactor": 20,
        "autovacuum_vacuum_scale_factor": 0,
        "autovacuum_vacuum_threshold": 500,
    },
    comment="Every session of every worker. A worker is alive while stopped_at is null and "
    "heartbeat_at is younger than its lease. Old sessions are deleted, by default after a year.",
)
# No index on heartbeat_at, which changes with every heartbeat: this index leaves few rows to read.
Index("workers_present", workers.c.worker_id, postgresql_where=text("stopped_at IS NULL"))

claims = Table(
    "claims",
    metadata,
    column("effect_id", ID, "The effect. Only one worker can hold it: a second claim is refused."),
    column("version", BigInteger, "The version of the context that the effect names."),
    optional("requested_version", BigInteger, "For a call: the version of the frame that announced it."),
    column(
        "claimed_at",
        TIME,
        "When the effect was first claimed, by the database's clock.",
        "clock_timestamp()",
    ),
    column("taken_at", TIME, "When the latest attempt was claimed.", "clock_timestamp()"),
    optional(
        "released_at",
        TIME,
        "When the worker released it for another worker; null after it is claimed again.",
    ),
    optional("finished_at", TIME, "When the work was finished; null until then."),
    optional("ordinal", Integer, "For a call: its index among the calls of that frame."),
    column(
        "attempt",
        Integer,
        "The number of the latest attempt, higher than every folded one; attempt numbers come "
        "from here only. A release before anything was published subtracts one, so that it may "
        "be 0.",
        "1",
    ),
    column("kind", Text, "run or call."),
    context_id(),
    optional("run_id", ID, "For a run: its id."),
    optional("tool_call_id", ID, "For a call: its id."),
    column("service", ID, "The service of the worker that holds the claim."),
    column("worker_id", ID, "The worker that holds the claim."),
    optional("finish", Text, "done, over (the run or call had already ended), or given_up."),
    column(
        "token",
        ID,
        "A random value of the attempt, which the worker's frames name (`claim`). It "
        "distinguishes two workers that got the same attempt number from a database that lost "
        "its latest commits.",
        '"left"((gen_random_uuid())::text, 8)',
    ),
    column(
        "deaths",
        Integer,
        "Number of attempts whose worker died. An attempt that its worker released is none.",
        "0",
    ),
    PrimaryKeyConstraint("effect_id", name="claims_pkey"),
    CheckConstraint(
        "CASE kind "
        "WHEN 'run' THEN run_id IS NOT NULL AND requested_version IS NULL AND tool_call_id IS NULL "
        "WHEN 'call' THEN requested_version IS NOT NULL AND ordinal IS NOT NULL AND tool_call_id IS NOT NULL "
        "ELSE false END",
        name="claims_kind_check",
    ),
    CheckConstraint("attempt >= 0", name="claims_attempt_check"),
    CheckConstraint("finish IN ('done', 'over', 'given_up')", name="claims_finish_check"),
    CheckConstraint("(finish IS NULL) = (finished_at IS NULL)", name="claims_finished_check"),
    postgresql_with={"fillfactor": 80},
    comment="Which worker runs which effect, with one row for each claimed effect. Old rows are deleted, by "
    "default after thirty days.",
)
Index("claims_unfinished", claims.c.worker_id, postgresql_where=text("finished_at IS NULL"))
Index(
    "claims_released",
    claims.c.taken_at,
    postgresql_where=text("finished_at IS NULL AND released_at IS NOT NULL"),
)
Index("claims_claimed_at", claims.c.claimed_at)
Index("claims_by_work", claims.c.context_id, claims.c.version, claims.c.tool_call_id)
