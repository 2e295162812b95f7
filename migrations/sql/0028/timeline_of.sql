CREATE OR REPLACE FUNCTION timeline_of(context_id text, first bigint DEFAULT NULL, last bigint DEFAULT NULL)
RETURNS TABLE (
    version bigint,
    logged_at timestamptz,
    type text,
    did text,
    said text,
    outcome text,
    reason text,
    run_id text,
    tool_call_id text,
    source text,
    frame_id uuid,
    causation_id uuid
)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    WITH written AS (
        SELECT
            messages.position,
            messages.valid_from,
            messages.valid_to,
            coalesce(messages.role, 'of its provider') AS role,
            messages.text,
            lag(messages.valid_to) OVER readings IS NOT DISTINCT FROM messages.valid_from AS again,
            lead(messages.valid_from) OVER readings IS NOT DISTINCT FROM messages.valid_to AS replaced
        FROM messages
        WHERE messages.context_id = timeline_of.context_id
        WINDOW readings AS (PARTITION BY messages.era, messages.position ORDER BY messages.valid_from)
    ),
    -- Those of one version in the order of kind, place and rank, which no two of them share.
    change (version, kind, place, rank, words) AS (
        SELECT eras.valid_from, 1, 0, 0, 'new history'
        FROM eras
        WHERE eras.context_id = timeline_of.context_id
        UNION ALL
        SELECT
            written.valid_from,
            2,
            min(written.position),
            0,
            CASE
                WHEN count(*) = 1 THEN format('message %s (%s)', min(written.position), min(written.role))
                ELSE format('messages %s to %s', min(written.position), max(written.position))
            END
        FROM written
        WHERE NOT written.again
        GROUP BY written.valid_from
        UNION ALL
        SELECT written.valid_from, 3, written.position, 0, format('message %s rewritten', written.position)
        FROM written
        WHERE written.again
        UNION ALL
        SELECT written.valid_to, 4, written.position, 0, format('message %s taken back', written.position)
        FROM written
        WHERE written.valid_to < 9223372036854775807 AND NOT written.replaced
        UNION ALL
        SELECT
            at.version,
            5,
            calls.requested_version,
            calls.ordinal,
            format(
                'call %s (%s) %s',
                short_id(calls.tool_call_id),
                calls.function_name,
                string_agg(at.words, ' and ' ORDER BY at.step)
            )
        FROM tool_calls AS calls
        CROSS JOIN LATERAL (
            VALUES
                (nullif(calls.requested_version, calls.started_version), 1, 'announced'),
                (calls.dispatched_version, 2, 'dispatched'),
                (calls.started_version, 3, 'started'),
                (calls.interrupted_version, 4, 'to be cancelled'),
                (calls.settled_version, 5, calls.status),
                (calls.resolved_version, 6, 'resolved')
        ) AS at (version, step, words)
        WHERE calls.context_id = timeline_of.context_id AND at.version IS NOT NULL
        GROUP BY at.version, calls.requested_version, calls.ordinal, calls.tool_call_id, calls.function_name
        UNION ALL
        SELECT
            at.version,
            6,
            min(at.step),
            run.requested_version,
            format('run %s %s', short_id(run.run_id), string_agg(at.words, ' and ' ORDER BY at.step))
        FROM runs AS run
        CROSS JOIN LATERAL (
            VALUES
                (run.closed_version, 1, run.status),
                (nullif(run.requested_version, run.opened_version), 2, 'asked for'),
                (run.opened_version, 3, 'opened')
        ) AS at (version, step, words)
        WHERE run.context_id = timeline_of.context_id AND at.version IS NOT NULL
        GROUP BY at.version, run.requested_version, run.run_id
        UNION ALL
        SELECT
            terms.valid_from,
            7,
            0,
            0,
            string_agg(replace(terms.name, '_', ' '), ' and ' ORDER BY terms.name) || ' set'
        FROM context_settings AS terms
        WHERE terms.context_id = timeline_of.context_id
        GROUP BY terms.valid_from
    ),
    step AS (
        SELECT change.version, string_agg(change.words, ', ' ORDER BY change.kind, change.place, change.rank) AS did
        FROM change
        WHERE change.version BETWEEN coalesce(timeline_of.first, 1) AND coalesce(timeline_of.last, 9223372036854775807)
        GROUP BY change.version
    ),
    brought AS (
        SELECT DISTINCT ON (written.valid_from) written.valid_from AS version, written.text
        FROM written
        ORDER BY written.valid_from, written.position DESC
    )
    SELECT
        frames.version,
        frames.logged_at,
        frames.type,
        step.did,
        left(
            CASE
                WHEN frames.type LIKE '%TextFrame' OR frames.type IN (
                    'TranscriptionFrame', 'InterimTranscriptionFrame', 'TranslationFrame'
                ) THEN json_text(frames.payload, 'text')
                WHEN frames.type = 'FunctionCallResultFrame' THEN json_text(frames.payload, 'result')
                WHEN frames.type = 'FunctionCallInProgressFrame' THEN json_text(frames.payload, 'arguments')
                WHEN frames.type = 'LLMFullResponseStartFrame' THEN concat_ws(
                    ', ', 'attempt ' || json_text(frames.payload, 'attempt'), json_text(frames.payload, 'model')
                )
                WHEN frames.type = 'LLMFullResponseEndFrame' THEN
                    nullif(json_text(frames.payload, 'finish_reason'), 'stop')
                WHEN frames.type = 'InterruptionFrame' THEN json_text(frames.payload, 'heard_text')
                WHEN frames.type = 'ErrorFrame' THEN json_text(frames.payload, 'message')
                WHEN frames.type = 'LLMMirrorFrame' THEN json_text(frames.payload, 'mirror')
                WHEN frames.type IN (
                    'LLMMessagesAppendFrame', 'LLMMessagesUpdateFrame', 'LLMMessageRewriteFrame', 'LLMContextFrame'
                ) THEN brought.text
            END,
            1000
        ),
        frames.outcome,
        frames.reason,
        frames.run_id,
        frames.tool_call_id,
        frames.source,
        frames.frame_id,
        frames.causation_id
    FROM frames
    LEFT JOIN step ON step.version = frames.version
    LEFT JOIN brought ON brought.version = frames.version
    WHERE frames.context_id = timeline_of.context_id
        AND frames.version BETWEEN coalesce(timeline_of.first, 1) AND coalesce(timeline_of.last, 9223372036854775807)
    ORDER BY frames.version;
END;
