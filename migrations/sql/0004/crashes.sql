ALTER TABLE projections
    DROP COLUMN idle_assignments,
    ADD COLUMN server_started_at timestamptz,
    ADD COLUMN attempt text COLLATE "C",
    ADD COLUMN crashes integer NOT NULL DEFAULT 0,
    ADD COLUMN crashes_alone integer NOT NULL DEFAULT 0,
    ADD CONSTRAINT projections_attempt_check CHECK (attempt IN ('batch', 'record'));

COMMENT ON COLUMN projections.server_started_at IS
    'Since when PostgreSQL had run without a restart or crash, when the owner took the partition over.';
COMMENT ON COLUMN projections.attempt IS
    'What the owner began at next_offset: a batch, or the next record alone. Null before that, and after an '
    'orderly end.';
COMMENT ON COLUMN projections.crashes IS
    'Number of owners that crashed over what they began at next_offset.';
COMMENT ON COLUMN projections.crashes_alone IS
    'Number of those that had begun the next record alone.';
