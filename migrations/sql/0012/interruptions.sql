-- Other types need another view.
DROP VIEW interruptions;

CREATE VIEW interruptions WITH (security_invoker = true) AS
SELECT
    interruption.context_id,
    interruption.version,
    date_trunc('second', interruption.logged_at) AS at,
    extract(epoch FROM run.closed_at - run.first_text_at)::double precision AS spoke_s,
    excerpt(kept.text, 28) AS kept
FROM frames AS interruption
LEFT JOIN runs AS run
    ON run.context_id = interruption.context_id AND run.closed_version = interruption.version
LEFT JOIN messages AS kept
    ON kept.context_id = interruption.context_id
    AND kept.valid_from = interruption.version
    AND kept.role = 'assistant'
WHERE interruption.type IN ('InterruptionFrame', 'StartInterruptionFrame')
ORDER BY interruption.context_id, interruption.version;

COMMENT ON VIEW interruptions IS 'Where each conversation was interrupted, and what was kept of the answer.';
COMMENT ON COLUMN interruptions.context_id IS 'The conversation.';
COMMENT ON COLUMN interruptions.version IS 'The version of the interruption.';
COMMENT ON COLUMN interruptions.at IS 'When it was logged.';
COMMENT ON COLUMN interruptions.spoke_s IS
    'Seconds from the first text of the run that it closed; null if it closed none.';
COMMENT ON COLUMN interruptions.kept IS 'The beginning of the text that it left; null if nothing had been said.';

GRANT SELECT ON interruptions TO frameledger_projector, frameledger_worker, frameledger_operator, frameledger_reader;
