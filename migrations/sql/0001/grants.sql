-- Nobody may update a frame or delete one: settle_outcome() and erase() are the ways, with their owner's rights.
DO $$
BEGIN
    EXECUTE format(
        'GRANT USAGE ON SCHEMA %I TO frameledger_projector, frameledger_worker, frameledger_operator, '
        'frameledger_reader', current_schema()
    );
END
$$;

GRANT SELECT ON
    frameledger_schema,
    frames, messages, eras, context_settings, contexts, runs, tool_calls, outbox, topics, projections,
    rejected_frames, outcome_changes, erasures,
    conversations, transcript, timeline, turns, interruptions, parked, lag
TO frameledger_projector, frameledger_worker, frameledger_operator, frameledger_reader;

GRANT INSERT ON frames TO frameledger_projector;
GRANT INSERT, UPDATE, DELETE ON
    messages, eras, context_settings, contexts, runs, tool_calls, outbox, topics, projections, rejected_frames
TO frameledger_projector;

REVOKE EXECUTE ON FUNCTION settle_outcome(text, bigint, text, text, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION settle_outcome(text, bigint, text, text, text)
TO frameledger_projector, frameledger_operator;

REVOKE EXECUTE ON FUNCTION erase(text, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION erase(text, text) TO frameledger_operator;
