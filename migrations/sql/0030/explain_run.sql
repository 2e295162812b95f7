CREATE OR REPLACE FUNCTION explain_run(context_id text, run_id text) RETURNS json
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    WITH run AS (
        SELECT
            runs.*,
            -- What a worker says after its run was over comes soon or never: so much later is looked for it.
            least(contexts.version, coalesce(runs.closed_version + 1000, contexts.version)) AS last_version
        FROM runs
        INNER JOIN contexts ON contexts.context_id = runs.context_id
        WHERE runs.context_id = explain_run.context_id AND runs.run_id = explain_run.run_id
    ),
    said AS MATERIALIZED (
        SELECT
            frames.version,
            frames.outcome,
            frames.type,
            -- An absent attempt is the first.
            coalesce(substring(json_text(frames.payload, 'attempt') FROM '^\d{1,9}$')::integer, 1) AS attempt,
            CASE
                WHEN json_text(frames.payload, 'append_to_context') = 'false' THEN NULL
                WHEN frames.type IN ('LLMTextFrame', 'VisionTextFrame') THEN json_text(frames.payload, 'text')
                -- Tokens bring their spaces along, other text does not.
                WHEN frames.type = 'TextFrame' THEN ' ' || json_text(frames.payload, 'text')
            END AS text,
            frames.payload,
            frame_as_json(frames) AS frame
        FROM run
        INNER JOIN frames
            ON frames.context_id = run.context_id
            AND frames.version >= run.requested_version
            AND frames.version <= run.last_version
            AND (
                frames.run_id = run.run_id AND frames.version > run.requested_version
                -- Whoever answers without run ids answers the run that is open, or none: its start then requests the run.
                OR run.attempt = 0
                AND frames.run_id IS NULL
                AND frames.version >= run.started_version
                AND (
                    run.closed_version IS NULL
                    OR frames.version < run.closed_version
                    -- The start of the next answer is not of this one.
                    OR frames.version = run.closed_version AND frames.type NOT LIKE '%ResponseStartFrame'
                )
                AND (frames.type LIKE '%Response%Frame' OR frames.type LIKE 'LLMThought%' OR frames.type LIKE '%TextFrame')
            )
    ),
    attempt AS (
        SELECT
            said.attempt,
            min(said.version) AS first_version,
            max(said.version) AS last_version,
            count(*) AS frames,
            string_agg(said.text, '' ORDER BY said.version) AS text,
            (array_agg(said.payload ORDER BY said.version) FILTER (WHERE said.type LIKE '%StartFrame'))[1] AS start
        FROM said
        WHERE said.outcome = 'applied'
        GROUP BY said.attempt
    )
    SELECT json_build_object(
        'run_id', run.run_id,
        'status', run.status,
        'attempt', run.attempt,
        'provider', run.provider,
        'model', run.model,
        'worker', run.worker,
        'saw_version', run.opened_version,
        'request_sha256', run.request_sha256,
        'finish_reason', run.finish_reason,
        'error', run.error,
        'usage', json_build_object(
            'input_tokens', run.input_tokens,
            'output_tokens', run.output_tokens,
            'cache_read_tokens', run.cache_read_tokens,
            'cache_write_tokens', run.cache_write_tokens,
            'reasoning_tokens', run.reasoning_tokens,
            'partial', run.usage_partial
        ),
        'times', json_build_object(
            'requested_at', run.requested_at,
            'opened_at', run.opened_at,
            'started_at', run.started_at,
            'first_text_at', run.first_text_at,
            'closed_at', run.closed_at
        ),
        'asked_by', (
            SELECT frame_as_json(frames)
            FROM frames
            WHERE frames.context_id = run.context_id AND frames.version = run.requested_version
        ),
        'closed_by', (
            SELECT frame_as_json(frames)
            FROM frames
            WHERE frames.context_id = run.context_id AND frames.version = run.closed_version
        ),
        'said', run.said,
        'attempts', (
            SELECT coalesce(
                json_agg(
                    json_build_object(
                        'attempt', attempt.attempt,
                        'from', attempt.first_version,
                        'to', attempt.last_version,
                        'frames', attempt.frames,
                        'superseded', attempt.attempt < run.attempt,
                        'model', json_text(attempt.start, 'model'),
                        'worker', json_text(attempt.start, 'worker'),
                        'request_sha256', json_text(attempt.start, 'request_sha256'),
                        'text', attempt.text
                    )
                    ORDER BY attempt.attempt
                ),
                '[]'
            )
            FROM attempt
        ),
        'ignored', (
            SELECT coalesce(
                json_agg(
                    json_build_object('frame', said.frame, 'attempt', said.attempt, 'text', said.text)
                    ORDER BY said.version
                ),
                '[]'
            )
            FROM said
            WHERE said.outcome = 'ignored'
        )
    )
    FROM run;
END;
