CREATE TABLE erasures (
    context_id  text COLLATE "C" NOT NULL,
    erased_at   timestamptz NOT NULL DEFAULT transaction_timestamp(),
    version     bigint NOT NULL,
    frame_count bigint NOT NULL,
    erased_by   text NOT NULL DEFAULT SESSION_USER,
    why         text NOT NULL,
    chain       bytea NOT NULL,
    CONSTRAINT erasures_pkey PRIMARY KEY (context_id, erased_at)
);

COMMENT ON TABLE erasures IS 'The receipts of erase(): what is left of a conversation that was deleted.';
COMMENT ON COLUMN erasures.context_id IS 'The conversation that is gone.';
COMMENT ON COLUMN erasures.erased_at IS 'When: the start of the transaction that erased it.';
COMMENT ON COLUMN erasures.version IS 'The version of its last frame.';
COMMENT ON COLUMN erasures.frame_count IS 'How many frames were deleted.';
COMMENT ON COLUMN erasures.erased_by IS 'Who: the database user of the session.';
COMMENT ON COLUMN erasures.why IS 'For what purpose, in the words of whoever did it.';
COMMENT ON COLUMN erasures.chain IS 'The head of its hash chain.';
