CREATE TABLE outbox (
    topic       text COLLATE "C" NOT NULL,
    partition   integer NOT NULL,
    "offset"    bigint NOT NULL,
    ordinal     integer NOT NULL,
    recorded_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    kind        text NOT NULL,
    to_topic    text NOT NULL,
    context_id  text COLLATE "C",
    key         bytea,
    value       bytea,
    headers     json NOT NULL,
    CONSTRAINT outbox_pkey PRIMARY KEY (topic, partition, "offset", ordinal),
    CONSTRAINT outbox_kind_check CHECK (kind IN ('effect', 'dead_letter', 'forward'))
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

COMMENT ON TABLE outbox IS 'What was decided and is not on Kafka yet: effects, dead letters, forwarded records.';
COMMENT ON COLUMN outbox.topic IS 'The topic of the record that caused it.';
COMMENT ON COLUMN outbox.partition IS 'The partition of that record.';
COMMENT ON COLUMN outbox."offset" IS 'The offset of that record.';
COMMENT ON COLUMN outbox.ordinal IS 'Its place among what that record caused, from 0.';
COMMENT ON COLUMN outbox.recorded_at IS 'When this row was written, by the database''s clock.';
COMMENT ON COLUMN outbox.kind IS 'effect, dead_letter, or forward.';
COMMENT ON COLUMN outbox.to_topic IS 'The topic that it is published to.';
COMMENT ON COLUMN outbox.context_id IS 'The conversation; null for a dead letter whose key names none.';
COMMENT ON COLUMN outbox.key IS 'The key that it is published with.';
COMMENT ON COLUMN outbox.value IS 'The value that it is published with.';
COMMENT ON COLUMN outbox.headers IS
    'The headers, in order: [[name, value], ...]; a value is text, null, or {"base64": ...} if it is no UTF-8.';
