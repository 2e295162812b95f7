COMMENT ON COLUMN frames.partition IS
    'The partition of the record that was folded; -1 if it was imported, and lies on no log of this database.';
