CREATE OR REPLACE VIEW interruptions WITH (security_invoker = true) AS
SELECT
    interruption.context_id,
    interruption.version,
    date_trunc('second', interruption.logged_at) AS at,
    extract(epoch FROM run.closed_at - run.first_text_at)::double precision AS spoke_s,
    excerpt(kept.text, 28) AS kept
FROM frames AS interruption
LEFT JOIN (
    -- An interruption may also drop the run that was to follow, and cut off an answer that belongs to no run. The one
    -- that was heard first counts.
    SELECT DISTINCT ON (runs.context_id, runs.closed_version)
        runs.context_id,
        runs.closed_version,
        runs.opened_version,
        runs.closed_at,
        runs.first_text_at
    FROM runs
    WHERE runs.closed_version IS NOT NULL
    ORDER BY runs.context_id, runs.closed_version, runs.first_text_at
) AS run ON run.context_id = interruption.context_id AND run.closed_version = interruption.version
LEFT JOIN LATERAL (
    SELECT said.text
    FROM messages AS said
    WHERE said.context_id = interruption.context_id
        AND said.valid_from = interruption.version
        AND said.role = 'assistant'
        -- Behind what is kept may come messages of clients, which were held until the answer was over: of no run.
        AND (said.run_id IS NOT NULL OR run.opened_version IS NULL)
    ORDER BY said.run_id IS NULL, said.era, said.position
    LIMIT 1
) AS kept ON true
WHERE interruption.type IN ('InterruptionFrame', 'StartInterruptionFrame')
    -- One of a process that was replaced interrupts nothing.
    AND interruption.outcome <> 'ignored'
ORDER BY interruption.context_id, interruption.version;
