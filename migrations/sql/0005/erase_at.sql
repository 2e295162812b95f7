CREATE FUNCTION erase_at(context_id text, version bigint, why text, requested_by text) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER
BEGIN ATOMIC
    INSERT INTO erasures (
        context_id, version, frame_count, why, chain, frame_id, requested_by, logged_at, partition, generation,
        "offset", source, trace_id, payload, places
    )
    SELECT
        erasing.context_id,
        erasing.version,
        (
            SELECT count(*) FROM frames
            WHERE frames.context_id = erasing.context_id AND frames.version < erasing.version
        ),
        erase_at.why,
        erasing.chain,
        erasing.frame_id,
        erase_at.requested_by,
        erasing.logged_at,
        erasing.partition,
        erasing.generation,
        erasing."offset",
        erasing.source,
        erasing.trace_id,
        erasing.payload,
        places_on_log(erasing.context_id, erasing.version - 1)
    FROM frames AS erasing
    WHERE erasing.context_id = erase_at.context_id AND erasing.version = erase_at.version
        AND erasing.type = 'LLMContextEraseFrame';

    -- Only with the receipt of this transaction may frames be deleted: without such a frame this fails.
    SELECT delete_conversation(erase_at.context_id, erase_at.version);
END;

COMMENT ON FUNCTION erase_at(text, bigint, text, text) IS
    'Honour the LLMContextEraseFrame that is stored at a version: delete the conversation up to it, the frame itself '
    'included, and keep its receipt. For projectors and unpark, which have folded the frame; why and who come from it.';

REVOKE EXECUTE ON FUNCTION erase_at(text, bigint, text, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION erase_at(text, bigint, text, text) TO frameledger_projector, frameledger_operator;

-- Frames that come late for what was erased are counted.
GRANT UPDATE (late_count) ON erasures TO frameledger_projector;
