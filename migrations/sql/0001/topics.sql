CREATE TABLE topics (
    topic       text COLLATE "C" NOT NULL,
    generation  integer NOT NULL DEFAULT 1,
    partitions  integer NOT NULL,
    topic_id    uuid,
    recorded_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT topics_pkey PRIMARY KEY (topic, generation)
);

COMMENT ON TABLE topics IS 'The topics that this database was filled from.';
COMMENT ON COLUMN topics.topic IS 'The topic''s name.';
COMMENT ON COLUMN topics.generation IS 'Counts the times that it was replaced by one with more partitions.';
COMMENT ON COLUMN topics.partitions IS 'How many partitions it has; services stop if the broker says otherwise.';
COMMENT ON COLUMN topics.topic_id IS
    'The broker''s own id of it; another one means that it was deleted and made again.';
COMMENT ON COLUMN topics.recorded_at IS 'When it was first seen, by the database''s clock.';
