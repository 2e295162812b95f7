CREATE OR REPLACE VIEW token_usage WITH (security_invoker = true) AS
SELECT
    runs.context_id,
    runs.model,
    sum(runs.input_tokens)::bigint AS input,
    sum(runs.output_tokens)::bigint AS output,
    sum(runs.cache_read_tokens)::bigint AS read,
    sum(runs.cache_write_tokens)::bigint AS written,
    sum(runs.reasoning_tokens)::bigint AS thought
FROM runs
WHERE runs.started_at IS NOT NULL
GROUP BY runs.context_id, runs.model
ORDER BY runs.context_id, runs.model;

COMMENT ON COLUMN token_usage.model IS 'The model; null if no run says which.';
