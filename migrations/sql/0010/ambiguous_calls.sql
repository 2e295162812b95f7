CREATE OR REPLACE VIEW ambiguous_calls WITH (security_invoker = true) AS
SELECT
    call.context_id,
    call.requested_version AS version,
    call.tool_call_id,
    excerpt(call.function_name || '(' || call.arguments::text || ')', 12) AS call,
    to_char(call.settled_at, 'MM-DD HH24:MI') AS at
FROM tool_calls AS call
WHERE call.status = 'ambiguous' AND call.resolved_version IS NULL
ORDER BY call.context_id, call.requested_version, call.ordinal;

COMMENT ON COLUMN ambiguous_calls.tool_call_id IS 'Its id.';
