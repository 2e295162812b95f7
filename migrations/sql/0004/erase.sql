CREATE OR REPLACE FUNCTION erase(context_id text, why text) RETURNS SETOF erasures
LANGUAGE sql VOLATILE SECURITY DEFINER
BEGIN ATOMIC
    -- Waits for the batch that is writing this conversation, and fences the projector that has it in memory: by the same
    -- row, and before the conversation's own, as a batch does.
    UPDATE projections SET epoch = epoch + 1
    WHERE projections.projection = 'contexts' AND projections.sealed_at IS NULL AND projections.partition = (
        SELECT frames.partition
        FROM frames
        WHERE frames.context_id = erase.context_id
        ORDER BY frames.version DESC
        LIMIT 1
    );

    SELECT FROM contexts WHERE contexts.context_id = erase.context_id FOR UPDATE;

    INSERT INTO erasures (context_id, version, frame_count, why, chain)
    SELECT
        head.context_id,
        head.version,
        (SELECT count(*) FROM frames WHERE frames.context_id = head.context_id),
        erase.why,
        head.chain
    FROM contexts AS head
    WHERE head.context_id = erase.context_id;

    DELETE FROM frames WHERE frames.context_id = erase.context_id;
    DELETE FROM messages WHERE messages.context_id = erase.context_id;
    DELETE FROM eras WHERE eras.context_id = erase.context_id;
    DELETE FROM context_settings WHERE context_settings.context_id = erase.context_id;
    DELETE FROM runs WHERE runs.context_id = erase.context_id;
    DELETE FROM tool_calls WHERE tool_calls.context_id = erase.context_id;
    DELETE FROM claims WHERE claims.context_id = erase.context_id;
    DELETE FROM outcome_changes WHERE outcome_changes.context_id = erase.context_id;
    DELETE FROM rejected_frames WHERE rejected_frames.context_id = erase.context_id;
    DELETE FROM contexts WHERE contexts.context_id = erase.context_id;

    SELECT *
    FROM erasures
    WHERE erasures.context_id = erase.context_id AND erasures.erased_at = transaction_timestamp();
END;

