-- Its rows are those of the table, with the new column.
CREATE OR REPLACE FUNCTION messages_at(context_id text, version bigint) RETURNS SETOF messages
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT messages.*
    FROM messages
    WHERE messages.context_id = messages_at.context_id
        AND messages.era = era_at(messages_at.context_id, messages_at.version)
        AND messages.valid_from <= messages_at.version
        AND messages.valid_to > messages_at.version
    ORDER BY messages.position;
END;
