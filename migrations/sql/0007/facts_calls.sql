CREATE VIEW facts_calls WITH (security_invoker = true) AS
SELECT
    call.context_id,
    call.requested_version,
    call.ordinal,
    call.tool_call_id,
    call.function_name,
    call.status,
    call.requested_at,
    call.dispatched_at,
    call.started_at,
    call.settled_at,
    (
        SELECT frames.logged_at
        FROM frames
        WHERE frames.context_id = call.context_id AND frames.version = call.resolved_version
    ) AS resolved_at,
    extract(epoch FROM coalesce(call.started_at, call.settled_at) - call.requested_at)::double precision
        AS queued_s,
    extract(epoch FROM call.settled_at - call.started_at)::double precision AS ran_s,
    call.started_version,
    call.settled_version,
    call.resolved_version,
    call.run_id,
    call.group_id,
    call.attempt,
    call.progress_count,
    call.synchronous,
    call.safe_to_retry,
    call.builtin,
    call.timeout_secs,
    call.worker,
    call.waiting_for,
    call.waiting_deadline,
    call.idempotency_key,
    call.arguments,
    call.result
FROM tool_calls AS call;

COMMENT ON VIEW facts_calls IS
    'Every call of a function, for programs: times, numbers and whole values. Fast by context_id and by requested_at.';
COMMENT ON COLUMN facts_calls.context_id IS 'The conversation.';
COMMENT ON COLUMN facts_calls.requested_version IS 'The version of the frame that announced it, or else started it.';
COMMENT ON COLUMN facts_calls.ordinal IS 'Its place among the calls of that frame, from 0.';
COMMENT ON COLUMN facts_calls.tool_call_id IS
    'The id that its provider gave; it may come again once this call is settled.';
COMMENT ON COLUMN facts_calls.function_name IS 'The function.';
COMMENT ON COLUMN facts_calls.status IS 'See tool_calls.status.';
COMMENT ON COLUMN facts_calls.requested_at IS 'When the frame that announced it was logged: filter by this.';
COMMENT ON COLUMN facts_calls.dispatched_at IS 'When it was committed and its turn.';
COMMENT ON COLUMN facts_calls.started_at IS 'When its first start was logged.';
COMMENT ON COLUMN facts_calls.settled_at IS 'When it was settled.';
COMMENT ON COLUMN facts_calls.resolved_at IS 'When a person said what became of it, if it was ambiguous.';
COMMENT ON COLUMN facts_calls.queued_s IS 'Seconds from requested_at until it started, or was settled without.';
COMMENT ON COLUMN facts_calls.ran_s IS 'Seconds from its first start until it was settled.';
COMMENT ON COLUMN facts_calls.started_version IS 'The version of its first start.';
COMMENT ON COLUMN facts_calls.settled_version IS 'The version of the frame that settled it.';
COMMENT ON COLUMN facts_calls.resolved_version IS 'The version at which a person resolved it.';
COMMENT ON COLUMN facts_calls.run_id IS 'The run that made it.';
COMMENT ON COLUMN facts_calls.group_id IS 'What it was announced together with.';
COMMENT ON COLUMN facts_calls.attempt IS 'Its latest attempt; 0 before it starts.';
COMMENT ON COLUMN facts_calls.progress_count IS 'Number of intermediate results.';
COMMENT ON COLUMN facts_calls.synchronous IS 'An interruption cancels it; null before it starts.';
COMMENT ON COLUMN facts_calls.safe_to_retry IS 'Running it twice does no harm; null before it starts.';
COMMENT ON COLUMN facts_calls.builtin IS 'It is one of our own tools.';
COMMENT ON COLUMN facts_calls.timeout_secs IS 'The seconds that it may take since it was dispatched.';
COMMENT ON COLUMN facts_calls.worker IS 'The worker that ran it, as it names itself.';
COMMENT ON COLUMN facts_calls.waiting_for IS 'Whom or what it waits for.';
COMMENT ON COLUMN facts_calls.waiting_deadline IS 'Until when it waits; null for no end.';
COMMENT ON COLUMN facts_calls.idempotency_key IS 'The key that every attempt of it gives to its handler.';
COMMENT ON COLUMN facts_calls.arguments IS 'The arguments; a string if they came as text.';
COMMENT ON COLUMN facts_calls.result IS 'Its final result; null for none.';
