GRANT SELECT ON forks, experiments
TO frameledger_projector, frameledger_worker, frameledger_operator, frameledger_reader;
