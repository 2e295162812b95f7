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
        runs.closed_at,
        runs.first_text_at
    FROM runs
    WHERE runs.closed_version IS NOT NULL
    ORDER BY runs.context_id, runs.closed_version, runs.first_text_at
) AS run ON run.context_id = interruption.context_id AND run.closed_version = interruption.version
LEFT JOIN messages AS kept
    ON kept.context_id = interruption.context_id
    AND kept.valid_from = interruption.version
    AND kept.role = 'assistant'
WHERE interruption.type IN ('InterruptionFrame', 'StartInterruptionFrame')
    -- One of a process that was replaced interrupts nothing.
    AND interruption.outcome <> 'ignored'
ORDER BY interruption.context_id, interruption.version;
