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
-- Run by run, in the order of the view: a LIMIT does not read the messages of all conversations.
LEFT JOIN LATERAL (
    SELECT string_agg(said.text, ' ' ORDER BY said.era, said.position) AS text
    -- Found by their versions, and then put in order: in that order, by the key of messages, each run would look
    -- through the whole conversation.
    FROM (
        SELECT left(said.text, 80) AS text, said.era, said.position
        FROM messages AS said
        WHERE said.context_id = run.context_id
            -- Not what an earlier attempt said.
            AND said.valid_from >= run.started_version
            AND said.valid_from <= coalesce(run.closed_version, 9223372036854775807)
            -- The interruption wrote the part of runs.said that was heard.
            AND (run.said IS NULL OR said.valid_from < run.closed_version)
            -- The messages of an answer that belongs to no run name no run, nor do those of calls. Its start writes
            -- what was said by the answer that it replaces.
            AND (
                said.run_id = run.run_id
                OR (
                    said.run_id IS NULL
                    AND run.opened_version IS NULL
                    AND said.valid_from > run.started_version
                    AND NOT only_calls(said.message)
                )
            )
            AND said.role = 'assistant'
            -- As it was written first: an interruption may have left only what was heard of it.
            AND NOT EXISTS (
                SELECT FROM messages AS earlier
                WHERE earlier.context_id = said.context_id
                    AND earlier.era = said.era
                    AND earlier.position = said.position
                    AND earlier.valid_from < said.valid_from
            )
        OFFSET 0
    ) AS said
) AS kept ON true
ORDER BY run.context_id, run.requested_version;
