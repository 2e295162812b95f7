CREATE OR REPLACE VIEW run_history WITH (security_invoker = true) AS
SELECT
    run.context_id,
    run.requested_version AS version,
    excerpt(
        CASE
            WHEN run.status = 'ended' THEN coalesce(nullif(run.finish_reason, 'stop'), run.status)
            ELSE run.status
        END,
        13
    ) AS became,
    run.attempt AS try,
    run.model,
    excerpt(coalesce(nullif(concat_ws(' ', kept.text, run.said), ''), run.error), 15) AS said
FROM runs AS run
LEFT JOIN (
    SELECT
        first.context_id,
        first.run_id,
        string_agg(left(first.text, 80), ' ' ORDER BY first.era, first.position) AS text
    FROM (
        -- As it was written first: an interruption may have left only what was heard of it.
        SELECT DISTINCT ON (said.context_id, said.era, said.position)
            said.context_id,
            said.era,
            said.position,
            said.run_id,
            said.valid_from,
            said.text
        FROM messages AS said
        WHERE said.role = 'assistant'
        ORDER BY said.context_id, said.era, said.position, said.valid_from
    ) AS first
    INNER JOIN runs AS by ON by.context_id = first.context_id AND by.run_id = first.run_id
    -- Not what an earlier attempt said, and not what was heard of what is in runs.said.
    WHERE first.valid_from >= by.started_version
        AND (by.said IS NULL OR first.valid_from < by.closed_version)
    GROUP BY first.context_id, first.run_id
) AS kept ON kept.context_id = run.context_id AND kept.run_id = run.run_id
ORDER BY run.context_id, run.requested_version;

COMMENT ON COLUMN run_history.model IS 'The model.';
