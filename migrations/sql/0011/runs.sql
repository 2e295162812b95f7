ALTER TABLE runs ADD COLUMN is_copy boolean;

COMMENT ON COLUMN runs.is_copy IS
    'Its answer was not given here, but published again by `frameledger replay`; else null. Of rows that an older release '
    'wrote it is not known.';
