CREATE OR REPLACE FUNCTION heard_for(context_id text, era integer, "position" integer) RETURNS SETOF frames
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    WITH turn AS (
        SELECT
            message.valid_from AS closed_version,
            regexp_replace(message.text, '\s+', ' ', 'g') AS words,
            coalesce(
                (
                    -- Every word belongs to one turn, so this one's begin after the turn before it.
                    SELECT before.valid_from
                    FROM messages AS before
                    INNER JOIN frames AS closing
                        ON closing.context_id = before.context_id AND closing.version = before.valid_from
                    WHERE before.context_id = message.context_id
                        AND (before.era, before.position) < (message.era, message.position)
                        -- Held inputs are written together (R7.5): then the words say whose they are.
                        AND before.valid_from < message.valid_from
                        AND before.role = 'user'
                        AND closing.type NOT IN (
                            'LLMMessagesAppendFrame', 'LLMMessagesUpdateFrame', 'LLMMessageRewriteFrame', 'LLMContextFrame'
                        )
                    ORDER BY before.era DESC, before.position DESC
                    LIMIT 1
                ),
                0
            ) AS after_version
        FROM messages AS message
        WHERE message.context_id = heard_for.context_id
            AND message.era = heard_for.era
            AND message.position = heard_for.position
            AND message.role = 'user'
        ORDER BY message.valid_from
        LIMIT 1
    )
    SELECT frames.*
    FROM turn
    INNER JOIN frames
        ON frames.context_id = heard_for.context_id
        AND frames.version > turn.after_version
        AND frames.version <= turn.closed_version
    WHERE frames.type = 'TranscriptionFrame'
        AND frames.outcome = 'applied'
        AND strpos(turn.words, btrim(regexp_replace(json_text(frames.payload, 'text'), '\s+', ' ', 'g'))) > 0
    ORDER BY frames.version;
END;

COMMENT ON FUNCTION heard_for(text, integer, integer) IS
    'The transcriptions that a message of a user is made of, by its era and position; none if it was not spoken.';
