ALTER TABLE contexts
    ADD COLUMN origin     json,
    ADD COLUMN experiment boolean NOT NULL DEFAULT false;

-- What is indexed does not change with a frame, so heads are still updated in place.
CREATE INDEX contexts_forks ON contexts ((origin ->> 'context_id')) WHERE origin IS NOT NULL;
CREATE INDEX contexts_experiments ON contexts (started_at) WHERE experiment;

COMMENT ON COLUMN contexts.origin IS
    'The moment that it was forked from: {context_id, version, chain}, the chain in hexadecimal; null if it was not.';
COMMENT ON COLUMN contexts.experiment IS
    'It is an experiment, such as a rerun; lists of conversations leave it out.';
