CREATE OR REPLACE VIEW interruptions WITH (security_invoker = true) AS
SELECT
    conversation.context_id,
    interruption.version,
    date_trunc('second', interruption.logged_at) AS at,
    extract(epoch FROM interruption.closed_at - interruption.first_text_at)::double precision AS spoke_s,
    excerpt(kept.text, 28) AS kept
-- One conversation after another, in the order of the view: a LIMIT does not sort the runs of all of them, and a long
-- conversation has its runs read once, not once for each interruption.
FROM (
    SELECT DISTINCT frames.context_id
    FROM frames
    WHERE frames.type IN ('InterruptionFrame', 'StartInterruptionFrame')
) AS conversation
CROSS JOIN LATERAL (
    SELECT frames.version, frames.logged_at, run.opened_version, run.closed_at, run.first_text_at
    FROM frames
    LEFT JOIN (
        -- An interruption may also drop the run that was to follow, and cut off an answer that belongs to no run. The
        -- one that was heard first counts; if none was heard, the one that was open.
        SELECT DISTINCT ON (runs.closed_version)
            runs.closed_version,
            runs.opened_version,
            runs.closed_at,
            runs.first_text_at
        FROM runs
        WHERE runs.context_id = conversation.context_id AND runs.closed_version IS NOT NULL
        ORDER BY runs.closed_version, runs.first_text_at, runs.opened_version
    ) AS run ON run.closed_version = frames.version
    WHERE frames.context_id = conversation.context_id
        AND frames.type IN ('InterruptionFrame', 'StartInterruptionFrame')
        -- One of a process that was replaced interrupts nothing.
        AND frames.outcome <> 'ignored'
    -- Keeps this a subquery of its own.
    ORDER BY frames.version
) AS interruption
LEFT JOIN LATERAL (
    SELECT said.text
    FROM messages AS said
    WHERE said.context_id = conversation.context_id
        AND said.valid_from = interruption.version
        AND said.role = 'assistant'
        -- Behind what is kept may come messages of clients, which were held until the answer was over: of no run.
        AND (said.run_id IS NOT NULL OR interruption.opened_version IS NULL)
    ORDER BY said.run_id IS NULL, said.era, said.position
    LIMIT 1
) AS kept ON true
ORDER BY conversation.context_id, interruption.version;
