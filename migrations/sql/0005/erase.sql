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

    INSERT INTO erasures (context_id, version, frame_count, why, chain, places)
    SELECT
        head.context_id,
        head.version,
        (SELECT count(*) FROM frames WHERE frames.context_id = head.context_id),
        erase.why,
        head.chain,
        places_on_log(head.context_id, head.version)
    FROM contexts AS head
    WHERE head.context_id = erase.context_id;

    SELECT delete_conversation(erasures.context_id, erasures.version)
    FROM erasures
    WHERE erasures.context_id = erase.context_id AND erasures.erased_at = transaction_timestamp();

    SELECT *
    FROM erasures
    WHERE erasures.context_id = erase.context_id AND erasures.erased_at = transaction_timestamp();
END;

COMMENT ON FUNCTION erase(text, text) IS
    'Delete a conversation from the tables and return the receipt; no row if it is not there. It leaves no record on the '
    'log, so a rebuild from it brings the conversation back: `frameledger erase` publishes one, for a deletion that lasts.';
