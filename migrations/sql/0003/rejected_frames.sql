ALTER TABLE rejected_frames
    ADD COLUMN generation integer NOT NULL DEFAULT 1,
    DROP CONSTRAINT rejected_frames_pkey,
    ADD CONSTRAINT rejected_frames_pkey PRIMARY KEY (topic, partition, "offset", generation);

COMMENT ON COLUMN rejected_frames.generation IS 'The generation of the topic that the offset belongs to; see topics.';
