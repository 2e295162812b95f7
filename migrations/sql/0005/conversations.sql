-- As before, without experiments.
CREATE OR REPLACE VIEW conversations WITH (security_invoker = true) AS
SELECT
    head.context_id,
    to_char(head.last_at, 'MM-DD HH24:MI') AS last_frame,
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
