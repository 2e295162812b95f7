CREATE OR REPLACE VIEW turns WITH (security_invoker = true) AS
SELECT
    head.context_id,
    turn.turn,
    excerpt(turn.text, 20) AS user_said,
    excerpt(answer.text, 20) AS answer,
    extract(epoch FROM run.first_text_at - run.requested_at)::double precision AS wait_s
FROM contexts AS head
-- One conversation after another, in the order of the view: a LIMIT does not count the turns of all of them.
CROSS JOIN LATERAL (
    SELECT
        said.position,
        said.valid_from,
        said.text,
        row_number() OVER in_order AS turn,
        lead(said.position) OVER in_order AS next_position
    FROM messages AS said
    WHERE said.context_id = head.context_id
        AND said.era = head.era
        AND said.role = 'user'
        AND said.valid_to = 9223372036854775807
    WINDOW in_order AS (ORDER BY said.position)
) AS turn
LEFT JOIN LATERAL (
    SELECT string_agg(left(said.text, 80), ' ' ORDER BY said.position) AS text
    FROM messages AS said
    WHERE said.context_id = head.context_id
        AND said.era = head.era
        AND said.position > turn.position
        AND said.position < coalesce(turn.next_position, 2147483647)
        AND said.role = 'assistant'
        AND said.valid_to = 9223372036854775807
        AND NOT only_calls(said.message)
) AS answer ON true
LEFT JOIN LATERAL (
    SELECT runs.requested_at, runs.first_text_at
    FROM runs
    WHERE runs.context_id = head.context_id AND runs.requested_version = turn.valid_from
    -- Found for each turn: joined by conversations, each turn would meet all runs of its own.
    OFFSET 0
) AS run ON true
ORDER BY head.context_id, turn.position;
