ALTER TABLE frames ADD COLUMN generation integer NOT NULL DEFAULT 1;

COMMENT ON COLUMN frames.generation IS 'The generation of the topic that the offset belongs to; see topics.';
