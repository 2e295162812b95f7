-- Other types need another view.
DROP VIEW turns;

CREATE VIEW turns WITH (security_invoker = true) AS
SELECT
    turn.context_id,
    turn.turn,
    excerpt(turn.text, 20) AS user_said,
    excerpt(answer.text, 20) AS answer,
    extract(epoch FROM run.first_text_at - run.requested_at)::double precision AS wait_s
FROM (
    SELECT
        said.context_id,
        said.era,
        said.position,
        said.valid_from,
        said.text,
        row_number() OVER turns_of_context AS turn,
        lead(said.position) OVER turns_of_context AS next_position
    FROM contexts AS head
    INNER JOIN messages AS said ON said.context_id = head.context_id AND said.era = head.era
    WHERE said.role = 'user' AND said.valid_to = 9223372036854775807
    WINDOW turns_of_context AS (PARTITION BY said.context_id ORDER BY said.position)
) AS turn
LEFT JOIN LATERAL (
    SELECT string_agg(left(said.text, 80), ' ' ORDER BY said.position) AS text
    FROM messages AS said
    WHERE said.context_id = turn.context_id
        AND said.era = turn.era
        AND said.position > turn.position
        AND said.position < coalesce(turn.next_position, 2147483647)
        AND said.role = 'assistant'
        AND said.valid_to = 9223372036854775807
) AS answer ON true
LEFT JOIN runs AS run ON run.context_id = turn.context_id AND run.requested_version = turn.valid_from
ORDER BY turn.context_id, turn.position;

COMMENT ON VIEW turns IS 'What the user said in each conversation, what the assistant answered, and how long it took.';
COMMENT ON COLUMN turns.context_id IS 'The conversation.';
COMMENT ON COLUMN turns.turn IS 'Counts what the user said in the current history, from 1.';
COMMENT ON COLUMN turns.user_said IS 'The beginning of what the user said.';
COMMENT ON COLUMN turns.answer IS 'The beginning of what the assistant said before the user''s next words.';
COMMENT ON COLUMN turns.wait_s IS 'Seconds from the end of the turn to the first text of the run that it asked for.';

GRANT SELECT ON turns TO frameledger_projector, frameledger_worker, frameledger_operator, frameledger_reader;
