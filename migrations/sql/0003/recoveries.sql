CREATE TABLE recoveries (
    topic            text COLLATE "C" NOT NULL,
    generation       integer NOT NULL,
    partition        integer NOT NULL,
    recovered_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    happened         text NOT NULL,
    stored_offset    bigint NOT NULL,
    first_offset     bigint NOT NULL,
    end_offset       bigint NOT NULL,
    begins_at        bigint NOT NULL,
    missing          bigint NOT NULL,
    put_back_at      timestamptz,
    put_back         bigint,
    put_back_through bigint,
    recovered_by     text NOT NULL DEFAULT SESSION_USER,
    CONSTRAINT recoveries_pkey PRIMARY KEY (topic, generation, partition),
    CONSTRAINT recoveries_happened_check CHECK (happened IN ('fine', 'lost_tail', 'expired', 'another_log'))
);

COMMENT ON TABLE recoveries IS
    'The receipts of recover: what had become of each partition, and where its new generation begins.';
COMMENT ON COLUMN recoveries.topic IS 'The topic.';
COMMENT ON COLUMN recoveries.generation IS 'The generation that was begun.';
COMMENT ON COLUMN recoveries.partition IS 'The partition.';
COMMENT ON COLUMN recoveries.recovered_at IS 'When that was, by the database''s clock.';
COMMENT ON COLUMN recoveries.happened IS
    'What had become of the partition: fine (nothing), lost_tail, expired (before it was stored), another_log.';
COMMENT ON COLUMN recoveries.stored_offset IS 'Where the generation before would have been read next.';
COMMENT ON COLUMN recoveries.first_offset IS 'The first offset that the partition had.';
COMMENT ON COLUMN recoveries.end_offset IS 'The end of the partition.';
COMMENT ON COLUMN recoveries.begins_at IS 'The offset at which the new generation is read first.';
COMMENT ON COLUMN recoveries.missing IS 'How many offsets expired that were never stored here.';
COMMENT ON COLUMN recoveries.put_back_at IS 'When all was on the log again that it had lost; null until then.';
COMMENT ON COLUMN recoveries.put_back IS 'How many frames were put back.';
COMMENT ON COLUMN recoveries.put_back_through IS
    'The highest offset that one of them has; null if none was put back.';
COMMENT ON COLUMN recoveries.recovered_by IS 'Who: the database user of the session.';
