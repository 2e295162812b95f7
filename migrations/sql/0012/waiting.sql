-- Other types need another view.
DROP VIEW waiting;

CREATE VIEW waiting WITH (security_invoker = true) AS
SELECT
    call.context_id,
    excerpt(call.function_name || '(' || call.arguments::text || ')', 11) AS call,
    excerpt(call.waiting_for, 15) AS waits_for,
    date_trunc('second', call.started_at) AS since,
    date_trunc('second', call.waiting_deadline) AS until
FROM tool_calls AS call
WHERE call.status = 'waiting'
ORDER BY call.waiting_deadline, call.context_id;

COMMENT ON VIEW waiting IS 'Calls that wait for a person, the most urgent first.';
COMMENT ON COLUMN waiting.context_id IS 'The conversation.';
COMMENT ON COLUMN waiting.call IS 'The beginning of the function''s name and of the arguments.';
COMMENT ON COLUMN waiting.waits_for IS 'Whom or what it waits for.';
COMMENT ON COLUMN waiting.since IS 'When it started.';
COMMENT ON COLUMN waiting.until IS 'Until when it waits; null for no end, or for one that nobody can read.';

GRANT SELECT ON waiting TO frameledger_projector, frameledger_worker, frameledger_operator, frameledger_reader;
