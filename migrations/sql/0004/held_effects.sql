ALTER TABLE projections ADD COLUMN effects_held_until bigint;

COMMENT ON COLUMN projections.effects_held_until IS
    'The end that the partition had when it was taken over, while records before it are still to be folded: until '
    'then nothing is asked for, and nobody takes its work; -1 while its new owner has not looked yet. Null '
    'when it has caught up.';

-- Whoever takes work asks for these, which usually are none. No batch changes the column.
CREATE INDEX projections_held ON projections (partition) WHERE effects_held_until IS NOT NULL AND sealed_at IS NULL;
