-- One row for each message of a user, however often it was rewritten: times and run of its first reading, text of its last.
CREATE OR REPLACE VIEW facts_turns WITH (security_invoker = true) AS
SELECT
    turn.context_id,
    turn.valid_from AS version,
    turn.era,
    turn.position,
    turn.said_at,
    (
        SELECT last.text
        FROM messages AS last
        WHERE last.context_id = turn.context_id
            AND last.era = turn.era
            AND last.position = turn.position
            AND last.role = 'user'
        ORDER BY last.valid_from DESC
        LIMIT 1
    ) AS user_said,
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
            AND NOT only_calls(answer.message)
    ) AS answer,
    run.run_id,
    run.status,
    run.model,
    run.first_text_at,
    run.closed_at AS answered_at,
    extract(epoch FROM run.first_text_at - coalesce(stop.logged_at, run.requested_at))::double precision AS first_text_s,
    -- A subquery runs only if a query names its column.
    coalesce(
        (
            SELECT
                json_text(wrote.payload, 'forked_from') IS NOT NULL
                OR json_text(json_text(wrote.payload, 'metadata')::json, 'replay_of') IS NOT NULL
            FROM contexts AS head
            INNER JOIN frames AS wrote ON wrote.context_id = head.context_id AND wrote.version = turn.valid_from
            -- Only conversations that were copied: a payload may be large.
            WHERE head.context_id = turn.context_id AND head.origin IS NOT NULL
        ),
        false
    ) AS is_copy
FROM messages AS turn
LEFT JOIN LATERAL (
    SELECT *
    FROM runs
    WHERE runs.context_id = turn.context_id AND runs.requested_version = turn.valid_from
    OFFSET 0
) AS run ON true
LEFT JOIN frames AS stop ON stop.context_id = run.context_id AND stop.version = run.heard_version
WHERE turn.role = 'user'
    AND NOT EXISTS (
        SELECT FROM messages AS earlier
        WHERE earlier.context_id = turn.context_id
            AND earlier.era = turn.era
            AND earlier.position = turn.position
            AND earlier.valid_from < turn.valid_from
            AND earlier.role = 'user'
        -- Looked up for each message: joined, a day or a long conversation would read the messages of all days.
        OFFSET 0
    )
    -- A history that was brought as a whole was answered before, elsewhere or in an earlier era.
    AND NOT (
        EXISTS (
            SELECT FROM eras
            WHERE eras.context_id = turn.context_id AND eras.valid_from = turn.valid_from
            -- For the same reason.
            OFFSET 0
        )
        AND EXISTS (
            SELECT FROM messages AS later
            WHERE later.context_id = turn.context_id
                AND later.era = turn.era
                AND later.position > turn.position
                AND later.valid_from = turn.valid_from
                AND later.role = 'assistant'
        )
    );
