-- A hundred columns wide with an id of eighteen characters. With a UUID, the id and the times alone take ninety-four.
CREATE OR REPLACE VIEW waiting WITH (security_invoker = true) AS
SELECT
    call.context_id,
    excerpt(call.function_name || '(' || call.arguments::text || ')', 10) AS call,
    excerpt(call.waiting_for, 14) AS waits_for,
    date_trunc('second', call.started_at) AS since,
    date_trunc('second', call.waiting_deadline) AS until
FROM tool_calls AS call
WHERE call.status = 'waiting'
ORDER BY call.waiting_deadline, call.context_id;
