ALTER TABLE projections ADD COLUMN sealed_at timestamptz;

COMMENT ON COLUMN projections.sealed_at IS
    'When recover began the next generation; null in the one that is read. Nobody owns it now.';
