GRANT SELECT ON
    workers, claims,
    run_history, token_usage, latency, tool_call_history, waiting, ambiguous_calls, services, tools_on_offer
TO frameledger_projector, frameledger_worker, frameledger_operator, frameledger_reader;

-- All that workers write.
GRANT INSERT, UPDATE, DELETE ON workers, claims TO frameledger_worker;
