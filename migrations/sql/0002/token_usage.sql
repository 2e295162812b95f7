CREATE VIEW token_usage WITH (security_invoker = true) AS
SELECT
    runs.context_id,
    excerpt(runs.model, 9) AS model,
    sum(runs.input_tokens)::bigint AS input,
    sum(runs.output_tokens)::bigint AS output,
    sum(runs.cache_read_tokens)::bigint AS read,
    sum(runs.cache_write_tokens)::bigint AS written,
    sum(runs.reasoning_tokens)::bigint AS thought
FROM runs
WHERE runs.started_at IS NOT NULL
GROUP BY runs.context_id, runs.model
ORDER BY runs.context_id, runs.model;

COMMENT ON VIEW token_usage IS
    'The tokens that each conversation took, by model, as the ends of its runs report them.';
COMMENT ON COLUMN token_usage.context_id IS 'The conversation.';
COMMENT ON COLUMN token_usage.model IS 'The beginning of the model''s name; null if no run says which.';
COMMENT ON COLUMN token_usage.input IS
    'Tokens that models were given; null if no run says how many. So are the others.';
COMMENT ON COLUMN token_usage.output IS 'Tokens that models gave.';
COMMENT ON COLUMN token_usage.read IS 'Tokens that were read from the provider''s cache.';
COMMENT ON COLUMN token_usage.written IS 'Tokens that were written to the provider''s cache.';
COMMENT ON COLUMN token_usage.thought IS 'Tokens that models thought with.';
