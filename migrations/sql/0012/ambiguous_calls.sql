-- Other types need another view.
DROP VIEW ambiguous_calls;

CREATE VIEW ambiguous_calls WITH (security_invoker = true) AS
SELECT
    call.context_id,
    call.requested_version AS version,
    call.tool_call_id,
    excerpt(call.function_name || '(' || call.arguments::text || ')', 12) AS call,
    date_trunc('second', call.settled_at) AS at
FROM tool_calls AS call
WHERE call.status = 'ambiguous' AND call.resolved_version IS NULL
ORDER BY call.context_id, call.requested_version, call.ordinal;

COMMENT ON VIEW ambiguous_calls IS 'Calls of which nobody knows whether they happened, and no person has said so yet.';
COMMENT ON COLUMN ambiguous_calls.context_id IS 'The conversation.';
COMMENT ON COLUMN ambiguous_calls.version IS
    'The version that announced it: opened_version of the result that resolves it.';
COMMENT ON COLUMN ambiguous_calls.tool_call_id IS 'Its id.';
COMMENT ON COLUMN ambiguous_calls.call IS 'The beginning of the function''s name and of the arguments.';
COMMENT ON COLUMN ambiguous_calls.at IS 'When it was settled.';

GRANT SELECT ON ambiguous_calls TO frameledger_projector, frameledger_worker, frameledger_operator, frameledger_reader;
