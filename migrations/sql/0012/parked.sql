-- Other types need another view.
DROP VIEW parked;

CREATE VIEW parked WITH (security_invoker = true) AS
SELECT
    contexts.context_id,
    contexts.parked_version AS since,
    contexts.version - contexts.parked_version + 1 AS waiting,
    date_trunc('second', contexts.parked_at) AS at,
    excerpt(contexts.parked_error, 25) AS error
FROM contexts
WHERE contexts.parked_version IS NOT NULL
ORDER BY contexts.context_id;

COMMENT ON VIEW parked IS 'Conversations whose frames are stored and not folded, because one of them could not be.';
COMMENT ON COLUMN parked.context_id IS 'The conversation.';
COMMENT ON COLUMN parked.since IS 'The version of the frame that could not be folded.';
COMMENT ON COLUMN parked.waiting IS 'How many frames wait, that one included.';
COMMENT ON COLUMN parked.at IS 'When it was parked.';
COMMENT ON COLUMN parked.error IS 'The beginning of what went wrong; all of it is in contexts.parked_error.';

GRANT SELECT ON parked TO frameledger_projector, frameledger_worker, frameledger_operator, frameledger_reader;
