CREATE OR REPLACE VIEW facts_turns WITH (security_invoker = true) AS
SELECT
    turn.context_id,
    turn.version,
    turn.era,
    turn.position,
    turn.said_at,
    turn.text AS user_said,
    (
        SELECT string_agg(answer.text, ' ' ORDER BY answer.position)
        FROM messages AS answer
        WHERE answer.context_id = turn.context_id
            AND answer.era = turn.era
            AND answer.position > turn.position
            AND answer.position < coalesce(
                (
                    SELECT next.position
                    FROM messages AS next
                    WHERE next.context_id = turn.context_id
                        AND next.era = turn.era
                        AND next.position > turn.position
                        AND next.role = 'user'
                    ORDER BY next.position
                    LIMIT 1
                ),
                2147483647
            )
            AND answer.role = 'assistant'
            AND answer.valid_to = 9223372036854775807
            AND answer.message -> 'tool_calls' IS NULL
    ) AS answer,
    run.run_id,
    run.status,
    run.model,
    run.first_text_at,
    run.closed_at AS answered_at,
    extract(epoch FROM run.first_text_at - coalesce(stop.logged_at, run.requested_at))::double precision AS first_text_s
FROM facts_messages AS turn
LEFT JOIN LATERAL (
    SELECT *
    FROM runs
    WHERE runs.context_id = turn.context_id AND runs.requested_version = turn.version
    OFFSET 0
) AS run ON true
LEFT JOIN frames AS stop ON stop.context_id = run.context_id AND stop.version = run.heard_version
WHERE turn.role = 'user'
    -- What a whole history brought along was answered before, elsewhere or in an earlier era.
    AND NOT (
        EXISTS (SELECT FROM eras WHERE eras.context_id = turn.context_id AND eras.valid_from = turn.version)
        AND EXISTS (
            SELECT FROM messages AS later
            WHERE later.context_id = turn.context_id
                AND later.era = turn.era
                AND later.position > turn.position
                AND later.valid_from = turn.version
                AND later.role = 'assistant'
        )
    );
