CREATE FUNCTION delete_conversation(context_id text, version bigint) RETURNS void
LANGUAGE sql VOLATILE
BEGIN ATOMIC
    DELETE FROM frames
    WHERE frames.context_id = delete_conversation.context_id AND frames.version <= delete_conversation.version;
    DELETE FROM messages
    WHERE messages.context_id = delete_conversation.context_id
        AND messages.valid_from <= delete_conversation.version;
    DELETE FROM eras
    WHERE eras.context_id = delete_conversation.context_id AND eras.valid_from <= delete_conversation.version;
    DELETE FROM context_settings
    WHERE context_settings.context_id = delete_conversation.context_id
        AND context_settings.valid_from <= delete_conversation.version;
    DELETE FROM runs
    WHERE runs.context_id = delete_conversation.context_id
        AND runs.requested_version <= delete_conversation.version;
    DELETE FROM tool_calls
    WHERE tool_calls.context_id = delete_conversation.context_id
        AND tool_calls.requested_version <= delete_conversation.version;
    DELETE FROM claims
    WHERE claims.context_id = delete_conversation.context_id AND claims.version <= delete_conversation.version;
    DELETE FROM outcome_changes
    WHERE outcome_changes.context_id = delete_conversation.context_id
        AND outcome_changes.version <= delete_conversation.version;
    DELETE FROM rejected_frames WHERE rejected_frames.context_id = delete_conversation.context_id;
    -- A forwarded record is judged where it arrives: it may be one of the next life.
    DELETE FROM outbox
    WHERE outbox.context_id = delete_conversation.context_id AND outbox.kind IN ('effect', 'dead_letter');
    -- It holds a state; with the head alone it would outlast an erasure behind which there are frames.
    DELETE FROM verified WHERE verified.context_id = delete_conversation.context_id;
    DELETE FROM contexts
    WHERE contexts.context_id = delete_conversation.context_id AND contexts.version <= delete_conversation.version;
END;

COMMENT ON FUNCTION delete_conversation(text, bigint) IS
    'Delete all of a conversation up to a version, for erase() and erase_at(), which write the receipt. Nobody else may '
    'call it.';

REVOKE EXECUTE ON FUNCTION delete_conversation(text, bigint) FROM PUBLIC;
