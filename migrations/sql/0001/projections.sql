CREATE TABLE projections (
    projection       text COLLATE "C" NOT NULL,
    topic            text COLLATE "C" NOT NULL,
    generation       integer NOT NULL DEFAULT 1,
    partition        integer NOT NULL,
    epoch            bigint NOT NULL DEFAULT 0,
    next_offset      bigint NOT NULL DEFAULT 0,
    last_offset      bigint,
    last_logged_at   timestamptz,
    end_offset       bigint,
    owner_started_at timestamptz,
    updated_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    owner_pid        integer,
    idle_assignments integer NOT NULL DEFAULT 0,
    owner            text,
    last_hash        bytea,
    CONSTRAINT projections_pkey PRIMARY KEY (projection, topic, generation, partition)
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

COMMENT ON TABLE projections IS
    'How far each partition was read, and by whom; written in the transaction of each batch.';
COMMENT ON COLUMN projections.projection IS 'What reads.';
COMMENT ON COLUMN projections.topic IS 'What it reads.';
COMMENT ON COLUMN projections.generation IS 'The topic''s generation.';
COMMENT ON COLUMN projections.partition IS 'The partition.';
COMMENT ON COLUMN projections.epoch IS 'Raised when the partition changes hands; the owner before is fenced by it.';
COMMENT ON COLUMN projections.next_offset IS 'The offset to be read next.';
COMMENT ON COLUMN projections.last_offset IS 'The offset of the last record that was read; null before the first.';
COMMENT ON COLUMN projections.last_logged_at IS 'When that record was logged.';
COMMENT ON COLUMN projections.end_offset IS 'The end of the partition when the owner last looked.';
COMMENT ON COLUMN projections.owner_started_at IS 'When the owner''s session began; a later session may have its pid.';
COMMENT ON COLUMN projections.updated_at IS 'When this row was last written, by the database''s clock.';
COMMENT ON COLUMN projections.owner_pid IS 'The database''s process that serves the owner.';
COMMENT ON COLUMN projections.idle_assignments IS 'How many owners it had since next_offset last moved, without those still there when the next came.';
COMMENT ON COLUMN projections.owner IS 'Who reads it now.';
COMMENT ON COLUMN projections.last_hash IS 'sha256 of that record''s key, value and time.';
