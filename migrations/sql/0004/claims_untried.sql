-- Few rows: those of work that is open, and of the last days.
ALTER TABLE claims DROP CONSTRAINT claims_attempt_check, ADD CONSTRAINT claims_attempt_check CHECK (attempt >= 0);

COMMENT ON COLUMN claims.attempt IS
    'Its latest attempt, from 1 and above every attempt that is folded: the only source of attempt numbers. '
    'Giving a claim back before anything was published takes one off, so it may be 0.';
