GRANT SELECT ON recoveries
TO frameledger_projector, frameledger_worker, frameledger_operator, frameledger_reader;

-- recover is the operator's: it seals one generation and begins the next.
GRANT INSERT, UPDATE ON topics, projections, recoveries TO frameledger_operator, frameledger_projector;
