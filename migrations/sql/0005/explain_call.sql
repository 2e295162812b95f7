CREATE FUNCTION explain_call(context_id text, requested_version bigint, ordinal integer) RETURNS json
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    WITH call AS (
        SELECT
            calls.*,
            least(
                contexts.version,
                coalesce(calls.settled_version + 1000, contexts.version),
                (
                    -- The id may come again.
                    SELECT min(later.requested_version) - 1
                    FROM tool_calls AS later
                    WHERE later.context_id = calls.context_id
                        AND later.requested_version > calls.requested_version
                        AND later.tool_call_id = calls.tool_call_id
                )
            ) AS last_version
        FROM tool_calls AS calls
        INNER JOIN contexts ON contexts.context_id = calls.context_id
        WHERE calls.context_id = explain_call.context_id
            AND calls.requested_version = explain_call.requested_version
            AND calls.ordinal = explain_call.ordinal
    )
    SELECT json_build_object(
        'tool_call_id', call.tool_call_id,
        'function_name', call.function_name,
        'arguments', call.arguments,
        'status', call.status,
        'result', call.result,
        'attempt', call.attempt,
        'worker', call.worker,
        'run_id', call.run_id,
        'group_id', call.group_id,
        'synchronous', call.synchronous,
        'safe_to_retry', call.safe_to_retry,
        'timeout_secs', call.timeout_secs,
        'progress_count', call.progress_count,
        'waiting_for', call.waiting_for,
        'idempotency_key', call.idempotency_key,
        'versions', json_build_object(
            'requested', call.requested_version,
            'dispatched', call.dispatched_version,
            'started', call.started_version,
            'interrupted', call.interrupted_version,
            'settled', call.settled_version,
            'resolved', call.resolved_version
        ),
        'times', json_build_object(
            'requested_at', call.requested_at,
            'dispatched_at', call.dispatched_at,
            'started_at', call.started_at,
            'settled_at', call.settled_at
        ),
        'frames', (
            SELECT coalesce(
                json_agg(
                    json_build_object(
                        'frame', frame_as_json(frames),
                        'attempt', json_text(frames.payload, 'call_attempt'),
                        'worker', json_text(frames.payload, 'worker')
                    )
                    ORDER BY frames.version
                ),
                '[]'
            )
            FROM frames
            WHERE frames.context_id = call.context_id
                AND (
                    frames.version BETWEEN call.requested_version AND call.last_version
                    AND frames.tool_call_id = call.tool_call_id
                    OR frames.version IN (
                        call.requested_version, call.dispatched_version, call.settled_version, call.resolved_version
                    )
                )
        )
    )
    FROM call;
END;

COMMENT ON FUNCTION explain_call(text, bigint, integer) IS
    'A call of a function as one JSON object: its row of tool_calls, and its frames with the attempt and the worker that '
    'each names, also those that were ignored, up to 1,000 versions after it was settled. Null if there is no such call.';
