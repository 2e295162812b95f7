CREATE TABLE rejected_frames (
    topic       text COLLATE "C" NOT NULL,
    partition   integer NOT NULL,
    "offset"    bigint NOT NULL,
    logged_at   timestamptz,
    recorded_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    retried_at  timestamptz,
    code        text NOT NULL,
    error       text NOT NULL,
    context_id  text COLLATE "C",
    key         bytea,
    value       bytea,
    headers     json NOT NULL,
    CONSTRAINT rejected_frames_pkey PRIMARY KEY (topic, partition, "offset")
);

COMMENT ON TABLE rejected_frames IS
    'Records that are no frame, or that the database refused: kept as received, changing nothing.';
COMMENT ON COLUMN rejected_frames.topic IS 'The topic of the record.';
COMMENT ON COLUMN rejected_frames.partition IS 'Its partition.';
COMMENT ON COLUMN rejected_frames."offset" IS 'Its offset.';
COMMENT ON COLUMN rejected_frames.logged_at IS 'When the broker took it.';
COMMENT ON COLUMN rejected_frames.recorded_at IS 'When this row was written, by the database''s clock.';
COMMENT ON COLUMN rejected_frames.retried_at IS 'When a person published it again.';
COMMENT ON COLUMN rejected_frames.code IS 'What is wrong, as a word.';
COMMENT ON COLUMN rejected_frames.error IS 'What is wrong, in a sentence.';
COMMENT ON COLUMN rejected_frames.context_id IS 'The conversation, if the key names one.';
COMMENT ON COLUMN rejected_frames.key IS 'The key as received.';
COMMENT ON COLUMN rejected_frames.value IS 'The value as received.';
COMMENT ON COLUMN rejected_frames.headers IS
    'The headers, in order: [[name, value], ...]; a value is text, null, or {"base64": ...} if it is no UTF-8.';
