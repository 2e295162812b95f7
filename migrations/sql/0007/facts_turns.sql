CREATE VIEW facts_turns WITH (security_invoker = true) AS
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
    extract(
        epoch FROM run.first_text_at - coalesce(
            (
                SELECT frames.logged_at
                FROM frames
                WHERE frames.context_id = run.context_id AND frames.version = run.heard_version
            ),
            run.requested_at
        )
    )::double precision AS first_text_s
FROM facts_messages AS turn
LEFT JOIN LATERAL (
    SELECT *
    FROM runs
    WHERE runs.context_id = turn.context_id AND runs.requested_version = turn.version
    OFFSET 0
) AS run ON true
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

COMMENT ON VIEW facts_turns IS
    'What users said, and what was answered, for programs. Fast by context_id and by said_at.';
COMMENT ON COLUMN facts_turns.context_id IS 'The conversation.';
COMMENT ON COLUMN facts_turns.version IS 'The version that the user''s words made.';
COMMENT ON COLUMN facts_turns.era IS 'The history that they belong to; contexts.era is the current one.';
COMMENT ON COLUMN facts_turns.position IS 'Their position in that history. There are gaps.';
COMMENT ON COLUMN facts_turns.said_at IS 'When the frame with them was logged: filter by this.';
COMMENT ON COLUMN facts_turns.user_said IS 'All that the user said.';
COMMENT ON COLUMN facts_turns.answer IS
    'All that the assistant said before the user''s next words, as the conversation keeps it; null for nothing.';
COMMENT ON COLUMN facts_turns.run_id IS
    'The run that these words asked for; null if they did not, or if it was asked for before. A call leads to more runs.';
COMMENT ON COLUMN facts_turns.status IS 'What became of that run.';
COMMENT ON COLUMN facts_turns.model IS 'Its model.';
COMMENT ON COLUMN facts_turns.first_text_at IS 'When its first text was logged.';
COMMENT ON COLUMN facts_turns.answered_at IS 'When it was closed.';
COMMENT ON COLUMN facts_turns.first_text_s IS
    'Seconds until its first text, since the user stopped speaking, or else since the run was asked for.';
