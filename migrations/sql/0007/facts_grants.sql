GRANT SELECT ON
    prices, facts_messages, facts_turns, facts_runs, facts_calls, facts_conversations
TO frameledger_projector, frameledger_worker, frameledger_operator, frameledger_reader;

GRANT INSERT, UPDATE, DELETE ON prices TO frameledger_operator;
