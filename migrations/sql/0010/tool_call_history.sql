-- Other types need another view.
DROP VIEW tool_call_history;

CREATE VIEW tool_call_history WITH (security_invoker = true) AS
SELECT
    call.context_id,
    excerpt(call.function_name || '(' || call.arguments::text || ')', 15) AS call,
    excerpt(
        CASE
            WHEN call.status = 'done' THEN coalesce(call.result::text, 'done')
            WHEN call.resolved_version IS NOT NULL THEN 'resolved'
            ELSE call.status || coalesce(': ' || call.result::text, '')
        END,
        11
    ) AS became,
    extract(epoch FROM coalesce(call.started_at, call.settled_at) - call.requested_at)::double precision AS queued,
    extract(epoch FROM call.settled_at - call.started_at)::double precision AS ran,
    call.worker AS who
FROM tool_calls AS call
ORDER BY call.context_id, call.requested_version, call.ordinal;

COMMENT ON VIEW tool_call_history IS 'Every call of a function: what became of it, how long it took, and who ran it.';
COMMENT ON COLUMN tool_call_history.context_id IS 'The conversation.';
COMMENT ON COLUMN tool_call_history.call IS 'The beginning of the function''s name and of the arguments.';
COMMENT ON COLUMN tool_call_history.became IS
    'The beginning of its result; of its status, if it is not done; resolved, if a person said so later.';
COMMENT ON COLUMN tool_call_history.queued IS
    'Seconds from its announcement until it started; null while it waits for that. Added to ran: all of its time.';
COMMENT ON COLUMN tool_call_history.ran IS 'Seconds from its start until it was settled.';
COMMENT ON COLUMN tool_call_history.who IS 'The worker that ran it, by its own account.';

GRANT SELECT ON tool_call_history TO frameledger_projector, frameledger_worker, frameledger_operator, frameledger_reader;
