CREATE OR REPLACE VIEW facts_runs WITH (security_invoker = true) AS
SELECT
    run.context_id,
    run.run_id,
    run.requested_version,
    run.opened_version,
    run.started_version,
    run.closed_version,
    run.requested_at,
    stop.logged_at AS heard_at,
    run.opened_at,
    run.started_at,
    run.first_text_at,
    run.closed_at,
    extract(epoch FROM run.first_text_at - coalesce(stop.logged_at, run.requested_at))::double precision AS first_text_s,
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
    -- A subquery runs only if a query names its column.
    (
        SELECT
            (
                -- A program may report input without the tokens of the cache, as some providers do: never less than 0.
                greatest(
                    run.input_tokens
                    - coalesce(run.cache_read_tokens, 0)
                    - coalesce(run.cache_write_tokens, 0),
                    run.input_tokens * 0
                ) * prices.input
                + coalesce(run.cache_read_tokens, 0) * coalesce(prices.cache_read, prices.input)
                + coalesce(run.cache_write_tokens, 0) * coalesce(prices.cache_write, prices.input)
                + greatest(run.output_tokens - coalesce(run.reasoning_tokens, 0), run.output_tokens * 0) * prices.output
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
                -- Found by their versions, and then put in order: in that order, by the key of messages, each run would
                -- look through the whole conversation.
                FROM (
                    SELECT said.text, said.era, said.position
                    FROM messages AS said
                    WHERE said.context_id = run.context_id
                        AND said.valid_from >= run.started_version
                        AND said.valid_from <= coalesce(run.closed_version, 9223372036854775807)
                        -- The interruption wrote the part of runs.said that was heard.
                        AND (run.said IS NULL OR said.valid_from < run.closed_version)
                        -- The messages of an answer that belongs to no run name no run. Its start writes what was said
                        -- by the answer that it replaces.
                        AND (
                            said.run_id = run.run_id
                            OR (
                                said.run_id IS NULL
                                AND run.opened_version IS NULL
                                AND said.valid_from > run.started_version
                            )
                        )
                        AND said.role = 'assistant'
                        AND NOT only_calls(said.message)
                        -- Only the first reading of each message.
                        AND NOT EXISTS (
                            SELECT FROM messages AS earlier
                            WHERE earlier.context_id = said.context_id
                                AND earlier.era = said.era
                                AND earlier.position = said.position
                                AND earlier.valid_from < said.valid_from
                        )
                    OFFSET 0
                ) AS said
            ),
            run.said
        ),
        ''
    ) AS generated,
    (
        SELECT string_agg(heard.text, ' ' ORDER BY heard.era, heard.position)
        -- For the same reason.
        FROM (
            SELECT said.context_id, said.era, said.position
            FROM messages AS said
            WHERE said.context_id = run.context_id
                AND said.valid_from >= run.started_version
                AND said.valid_from <= coalesce(run.closed_version, 9223372036854775807)
                AND (
                    said.run_id = run.run_id
                    OR (
                        said.run_id IS NULL
                        AND run.opened_version IS NULL
                        AND said.valid_from > run.started_version
                    )
                )
                AND said.role = 'assistant'
                AND NOT only_calls(said.message)
                AND NOT EXISTS (
                    SELECT FROM messages AS earlier
                    WHERE earlier.context_id = said.context_id
                        AND earlier.era = said.era
                        AND earlier.position = said.position
                        AND earlier.valid_from < said.valid_from
                )
            OFFSET 0
        ) AS said
        INNER JOIN messages AS heard
            ON heard.context_id = said.context_id
            AND heard.era = said.era
            AND heard.position = said.position
            AND heard.valid_to = 9223372036854775807
    ) AS heard,
    (SELECT head.experiment FROM contexts AS head WHERE head.context_id = run.context_id) AS experiment,
    coalesce(run.is_copy, false) AS is_copy
FROM runs AS run
-- At most one row, by its key: the plan leaves the join out if a query names no column of it, and reads it once otherwise.
LEFT JOIN frames AS stop ON stop.context_id = run.context_id AND stop.version = run.heard_version;
