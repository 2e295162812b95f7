-- An erasure is a record on the log: its receipt says where that lies, and holds it byte for byte.
ALTER TABLE erasures DROP CONSTRAINT erasures_pkey;
ALTER TABLE erasures ADD COLUMN frame_id uuid;
ALTER TABLE erasures ADD COLUMN requested_by text;
ALTER TABLE erasures ADD COLUMN logged_at timestamptz;
ALTER TABLE erasures ADD COLUMN partition integer;
ALTER TABLE erasures ADD COLUMN generation integer;
ALTER TABLE erasures ADD COLUMN "offset" bigint;
ALTER TABLE erasures ADD COLUMN source text;
ALTER TABLE erasures ADD COLUMN trace_id text;
ALTER TABLE erasures ADD COLUMN payload json;
ALTER TABLE erasures ADD COLUMN places json;
ALTER TABLE erasures ADD COLUMN late_count bigint NOT NULL DEFAULT 0;
-- One batch may erase a conversation twice, and versions go on from an erasure.
ALTER TABLE erasures ADD CONSTRAINT erasures_pkey PRIMARY KEY (context_id, erased_at, version);
CREATE UNIQUE INDEX erasures_frame_id ON erasures (context_id, frame_id) WHERE frame_id IS NOT NULL;

COMMENT ON TABLE erasures IS 'The receipts: what is left of a conversation that was erased.';
COMMENT ON COLUMN erasures.version IS
    'The version of the frame that erased it, from which the next life of its id goes on; of one that erase() deleted '
    'without a frame, that of its last frame.';
COMMENT ON COLUMN erasures.frame_count IS 'How many frames were deleted.';
COMMENT ON COLUMN erasures.erased_by IS 'The database user that deleted them: a projector''s, or whoever called erase().';
COMMENT ON COLUMN erasures.chain IS 'The head of its hash chain, at version.';
COMMENT ON COLUMN erasures.frame_id IS
    'The frame on the log that erased it; null if erase() did without one, which does not outlast a rebuild.';
COMMENT ON COLUMN erasures.requested_by IS 'Who asked for it, as that frame says.';
COMMENT ON COLUMN erasures.logged_at IS 'When the broker took that frame.';
COMMENT ON COLUMN erasures.partition IS 'The partition of that frame.';
COMMENT ON COLUMN erasures.generation IS 'The generation of the topic that its offset belongs to.';
COMMENT ON COLUMN erasures."offset" IS 'Its offset.';
COMMENT ON COLUMN erasures.source IS 'Its publisher, as it names itself.';
COMMENT ON COLUMN erasures.trace_id IS 'The trace that it belongs to.';
COMMENT ON COLUMN erasures.payload IS 'The value of that frame, byte for byte.';
COMMENT ON COLUMN erasures.places IS
    'Where the records of the deleted frames lay on the log, which keeps them for its retention: a list of {partition, '
    'generation, first_offset, last_offset, records}.';
COMMENT ON COLUMN erasures.late_count IS
    'Number of frames that came later for a run, a call or a turn of what was erased. They were left out.';
