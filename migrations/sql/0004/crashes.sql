ALTER TABLE projections
    DROP COLUMN idle_assignments,
    ADD COLUMN server_started_at timestamptz,
    ADD COLUMN attempt text COLLATE "C",
    ADD COLUMN crashes integer NOT NULL DEFAULT 0,
    ADD COLUMN crashes_alone integer NOT NULL DEFAULT 0,
    ADD CONSTRAINT projections_attempt_check CHECK (attempt IN ('batch', 'record'));

COMMENT ON COLUMN projections.server_started_at IS
    'Since when the server of the owner''s session had run without a break when that began.';
COMMENT ON COLUMN projections.attempt IS
    'What the owner began at next_offset: a batch, or the next record alone. Null before it does and once it ended in order.';
COMMENT ON COLUMN projections.crashes IS
    'How many owners crashed over what they began at next_offset.';
COMMENT ON COLUMN projections.crashes_alone IS
    'How many of these had begun nothing but the next record.';
