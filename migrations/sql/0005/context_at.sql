CREATE OR REPLACE FUNCTION context_at(context_id text, version bigint DEFAULT NULL) RETURNS json
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT json_build_object(
        'messages', (
            SELECT coalesce(json_agg(said.message), '[]') FROM messages_at(context_at.context_id, head.at) AS said
        ),
        'tools', coalesce(setting_at(context_at.context_id, 'tools', head.at), '[]'),
        'tool_choice', setting_at(context_at.context_id, 'tool_choice', head.at),
        'settings', coalesce(setting_at(context_at.context_id, 'settings', head.at), '{}')
    )
    FROM (
        SELECT coalesce(context_at.version, contexts.version) AS at
        FROM contexts
        WHERE contexts.context_id = context_at.context_id
            AND coalesce(context_at.version, 0) BETWEEN 0 AND contexts.version
            -- What came before an erasure is no version any more.
            AND (coalesce(context_at.version, 0) = 0 OR context_at.version >= (
                SELECT min(frames.version) - 1 FROM frames WHERE frames.context_id = context_at.context_id
            ))
    ) AS head;
END;

COMMENT ON FUNCTION context_at(text, bigint) IS
    'The context at a version, 0 before its first frame; as it is now if no version is given: a JSON object with '
    'messages, tools, tool_choice and settings. Null if it has no such version, or if that was erased.';
