ALTER TABLE outbox
    ADD COLUMN generation integer NOT NULL DEFAULT 1,
    DROP CONSTRAINT outbox_pkey,
    ADD CONSTRAINT outbox_pkey PRIMARY KEY (topic, partition, "offset", ordinal, generation);

COMMENT ON COLUMN outbox.generation IS 'The generation of the topic that the offset belongs to; see topics.';
