-- A function of its own: a version that is null, as of a run that never opened, goes on to have no messages.
CREATE FUNCTION messages_at(context_id text) RETURNS SETOF messages
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT messages.*
    FROM messages
    WHERE messages.context_id = messages_at.context_id
        AND messages.era = era_at(messages_at.context_id, 9223372036854775807)
        AND messages.valid_to = 9223372036854775807
    ORDER BY messages.position;
END;

COMMENT ON FUNCTION messages_at(text) IS
    'Returns the rows of messages that are the context now, in order.';
