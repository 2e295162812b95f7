-- No row is written again for it: what was claimed before has none, and gets one when it is next taken.
ALTER TABLE claims ADD COLUMN token text COLLATE "C" NOT NULL DEFAULT '';

ALTER TABLE claims ALTER COLUMN token SET DEFAULT left(gen_random_uuid()::text, 8);

COMMENT ON COLUMN claims.token IS
    'Random, drawn for each attempt and named by the worker''s frames (`claim`). It tells two workers apart that '
    'got the same attempt number, from a database that lost its latest commits.';
COMMENT ON COLUMN claims.attempt IS
    'Its latest attempt, from 1 and above every attempt that is folded: the only source of attempt numbers.';
