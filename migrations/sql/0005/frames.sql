-- It was always null, and a text. Neither statement rewrites the table.
ALTER TABLE frames DROP COLUMN causation_id;
ALTER TABLE frames ADD COLUMN causation_id uuid;

COMMENT ON COLUMN frames.causation_id IS
    'The frame_id of the frame of this conversation that caused it; null for what a client says by itself.';
