-- Other types need another view.
DROP VIEW conversations;

CREATE VIEW conversations WITH (security_invoker = true) AS
SELECT
    head.context_id,
    date_trunc('second', head.last_at) AS last_frame,
    head.version AS frames,
    CASE
        WHEN head.parked_version IS NOT NULL THEN 'parked'
        WHEN head.ended THEN 'ended'
        WHEN head.recording THEN 'recording'
        WHEN head.open_run_id IS NOT NULL THEN 'answering'
        WHEN head.open_call_count > 0 THEN 'calling'
        ELSE 'quiet'
    END AS status,
    excerpt(words.text, 24) AS last_words
FROM contexts AS head
LEFT JOIN LATERAL (
    SELECT messages.text
    FROM messages
    WHERE messages.context_id = head.context_id
        AND messages.era = head.era
        AND messages.valid_to = 9223372036854775807
        AND messages.role IN ('user', 'assistant')
        AND messages.text IS NOT NULL
    ORDER BY messages.position DESC
    LIMIT 1
) AS words ON true
WHERE NOT head.experiment
ORDER BY head.started_at DESC;

COMMENT ON VIEW conversations IS
    'Every conversation but experiments, the newest first: what it is doing and what was said last.';
COMMENT ON COLUMN conversations.context_id IS 'The conversation.';
COMMENT ON COLUMN conversations.last_frame IS 'When its newest frame was logged.';
COMMENT ON COLUMN conversations.frames IS 'How many frames of it are stored; its version.';
COMMENT ON COLUMN conversations.status IS 'parked, ended, recording, answering, calling (a function), or quiet.';
COMMENT ON COLUMN conversations.last_words IS 'The beginning of what the user or the assistant said last.';

GRANT SELECT ON conversations TO frameledger_projector, frameledger_worker, frameledger_operator, frameledger_reader;
