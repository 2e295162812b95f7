CREATE VIEW facts_runs WITH (security_invoker = true) AS
SELECT
    run.context_id,
    run.run_id,
    run.requested_version,
    run.opened_version,
    run.started_version,
    run.closed_version,
    run.requested_at,
    -- What stands in brackets is looked up only where a query names the column.
    (
        SELECT frames.logged_at
        FROM frames
        WHERE frames.context_id = run.context_id AND frames.version = run.heard_version
    ) AS heard_at,
    run.opened_at,
    run.started_at,
    run.first_text_at,
    run.closed_at,
    extract(
        epoch FROM run.first_text_at - coalesce(
            (
                SELECT frames.logged_at
                FROM frames
                WHERE frames.context_id = run.context_id AND frames.version = run.heard_version
            ),
            run.requested_at
        )
    )::double precision AS first_text_s,
    extract(epoch FROM run.closed_at - run.requested_at)::double precision AS closed_s,
    run.trigger,
    run.status,
    run.finish_reason,
    run.attempt,
    run.worker,
    run.provider,
    run.model,
    run.error_code,
    run.error,
    run.input_tokens,
    run.output_tokens,
    run.cache_read_tokens,
    run.cache_write_tokens,
    run.reasoning_tokens,
    run.usage_partial,
    (
        SELECT
            (
                (
                    run.input_tokens
                    - coalesce(run.cache_read_tokens, 0)
                    - coalesce(run.cache_write_tokens, 0)
                ) * prices.input
                + coalesce(run.cache_read_tokens, 0) * coalesce(prices.cache_read, prices.input)
                + coalesce(run.cache_write_tokens, 0) * coalesce(prices.cache_write, prices.input)
                + (run.output_tokens - coalesce(run.reasoning_tokens, 0)) * prices.output
                + coalesce(run.reasoning_tokens, 0) * coalesce(prices.reasoning, prices.output)
            ) / 1000000
        FROM prices
        WHERE prices.model = run.model
            AND prices.provider IN ('', run.provider)
            AND prices.valid_from <= coalesce(run.started_at, run.requested_at)
        ORDER BY prices.provider DESC, prices.valid_from DESC
        LIMIT 1
    ) AS cost,
    (
        SELECT prices.currency
        FROM prices
        WHERE prices.model = run.model
            AND prices.provider IN ('', run.provider)
            AND prices.valid_from <= coalesce(run.started_at, run.requested_at)
        ORDER BY prices.provider DESC, prices.valid_from DESC
        LIMIT 1
    ) AS currency,
    nullif(
        concat_ws(
            ' ',
            (
                SELECT string_agg(said.text, ' ' ORDER BY said.era, said.position)
                FROM messages AS said
                WHERE said.context_id = run.context_id
                    AND said.valid_from >= run.started_version
                    AND said.valid_from <= coalesce(run.closed_version, 9223372036854775807)
                    -- What was heard of what is in runs.said came with the interruption.
                    AND (run.said IS NULL OR said.valid_from < run.closed_version)
                    -- Of an answer that belongs to no run the messages name none.
                    AND (said.run_id = run.run_id OR (said.run_id IS NULL AND run.opened_version IS NULL))
                    AND said.role = 'assistant'
                    AND said.message -> 'tool_calls' IS NULL
                    -- As it was written first.
                    AND NOT EXISTS (
                        SELECT FROM messages AS earlier
                        WHERE earlier.context_id = said.context_id
                            AND earlier.era = said.era
                            AND earlier.position = said.position
                            AND earlier.valid_from < said.valid_from
                    )
            ),
            run.said
        ),
        ''
    ) AS generated,
    (
        SELECT string_agg(heard.text, ' ' ORDER BY heard.era, heard.position)
        FROM messages AS said
        INNER JOIN messages AS heard
            ON heard.context_id = said.context_id
            AND heard.era = said.era
            AND heard.position = said.position
            AND heard.valid_to = 9223372036854775807
        WHERE said.context_id = run.context_id
            AND said.valid_from >= run.started_version
            AND said.valid_from <= coalesce(run.closed_version, 9223372036854775807)
            AND (said.run_id = run.run_id OR (said.run_id IS NULL AND run.opened_version IS NULL))
            AND said.role = 'assistant'
            AND said.message -> 'tool_calls' IS NULL
            AND NOT EXISTS (
                SELECT FROM messages AS earlier
                WHERE earlier.context_id = said.context_id
                    AND earlier.era = said.era
                    AND earlier.position = said.position
                    AND earlier.valid_from < said.valid_from
            )
    ) AS heard
FROM runs AS run;

COMMENT ON VIEW facts_runs IS
    'Every inference, for programs: times, numbers and whole texts. Fast by context_id and by requested_at.';
COMMENT ON COLUMN facts_runs.context_id IS 'The conversation.';
COMMENT ON COLUMN facts_runs.run_id IS 'The run.';
COMMENT ON COLUMN facts_runs.requested_version IS 'The version of the frame that asked for it first.';
COMMENT ON COLUMN facts_runs.opened_version IS 'The version of the context that it reads; null before it opens.';
COMMENT ON COLUMN facts_runs.started_version IS 'The version of the start of its latest attempt.';
COMMENT ON COLUMN facts_runs.closed_version IS 'The version of the frame that closed it.';
COMMENT ON COLUMN facts_runs.requested_at IS 'When the frame that asked was logged: filter by this.';
COMMENT ON COLUMN facts_runs.heard_at IS
    'When the user stopped speaking; null if it answers no turn of the user.';
COMMENT ON COLUMN facts_runs.opened_at IS 'When it was opened.';
COMMENT ON COLUMN facts_runs.started_at IS 'When its latest attempt began to answer.';
COMMENT ON COLUMN facts_runs.first_text_at IS 'When the first text of that attempt was logged.';
COMMENT ON COLUMN facts_runs.closed_at IS 'When it was closed.';
COMMENT ON COLUMN facts_runs.first_text_s IS
    'Seconds until the first text, since the user stopped speaking, or else since the run was asked for.';
COMMENT ON COLUMN facts_runs.closed_s IS 'Seconds from requested_at to closed_at.';
COMMENT ON COLUMN facts_runs.trigger IS 'The type of the frame that asked for it first.';
COMMENT ON COLUMN facts_runs.status IS 'See runs.status.';
COMMENT ON COLUMN facts_runs.finish_reason IS 'stop, tool_calls, length, content_filter, or error.';
COMMENT ON COLUMN facts_runs.attempt IS
    'Its latest attempt; 0 before the first, and for an answer that names no run.';
COMMENT ON COLUMN facts_runs.worker IS 'The worker that answered, as it names itself.';
COMMENT ON COLUMN facts_runs.provider IS 'Whose model.';
COMMENT ON COLUMN facts_runs.model IS 'Which model.';
COMMENT ON COLUMN facts_runs.error_code IS 'The code of its latest error.';
COMMENT ON COLUMN facts_runs.error IS 'The message of that error.';
COMMENT ON COLUMN facts_runs.input_tokens IS 'Tokens read, those of the cache included; null if unknown.';
COMMENT ON COLUMN facts_runs.output_tokens IS 'Tokens written, those of thoughts included; null if unknown.';
COMMENT ON COLUMN facts_runs.cache_read_tokens IS 'Tokens read from the provider''s cache.';
COMMENT ON COLUMN facts_runs.cache_write_tokens IS 'Tokens written to the provider''s cache.';
COMMENT ON COLUMN facts_runs.reasoning_tokens IS 'Tokens of thoughts.';
COMMENT ON COLUMN facts_runs.usage_partial IS
    'Its tokens are what was known before an end that it never had, or that was an error.';
COMMENT ON COLUMN facts_runs.cost IS
    'What its tokens cost by the table prices, at the price of started_at; null if no price fits, or if it is not '
    'known how many tokens were read or written.';
COMMENT ON COLUMN facts_runs.currency IS 'The currency of that price.';
COMMENT ON COLUMN facts_runs.generated IS
    'What its latest attempt said, whatever of that was heard; null for nothing. Calls are in facts_calls.';
COMMENT ON COLUMN facts_runs.heard IS
    'What the conversation keeps of that: after an interruption what was heard, if somebody said so.';
