ALTER TABLE projections ADD COLUMN effects_held_until bigint;

COMMENT ON COLUMN projections.effects_held_until IS
    'End of the partition when it was taken over. Until it is reached no effects are published, and no work is '
    'claimed; -1 until the new owner has read the end. Null once it has caught up.';

-- Whoever takes work asks for these, which usually are none. No batch changes the column.
CREATE INDEX projections_held ON projections (partition) WHERE effects_held_until IS NOT NULL AND sealed_at IS NULL;
