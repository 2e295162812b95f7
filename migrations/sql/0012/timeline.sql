-- Other types need another view.
DROP VIEW timeline;

CREATE VIEW timeline WITH (security_invoker = true) AS
SELECT
    frames.context_id,
    frames.version,
    date_trunc('second', frames.logged_at) AS at,
    excerpt(
        regexp_replace(frames.type, 'Frame$', '')
        || CASE WHEN frames.outcome = 'applied' THEN '' ELSE ': ' || coalesce(frames.reason, frames.outcome) END,
        38
    ) AS frame
FROM frames
ORDER BY frames.context_id, frames.version;

COMMENT ON VIEW timeline IS 'Every frame of each conversation, in order, and what became of it if it was not applied.';
COMMENT ON COLUMN timeline.context_id IS 'The conversation.';
COMMENT ON COLUMN timeline.version IS 'The version that it made.';
COMMENT ON COLUMN timeline.at IS 'When it was logged.';
COMMENT ON COLUMN timeline.frame IS 'Its type; behind a colon why it was ignored, or that it is unknown or parked.';

GRANT SELECT ON timeline TO frameledger_projector, frameledger_worker, frameledger_operator, frameledger_reader;
