ALTER TABLE runs ADD COLUMN usage_partial boolean NOT NULL DEFAULT false;

COMMENT ON COLUMN runs.usage_partial IS
    'Its tokens are what was known before an end that it never had, or that was an error.';
COMMENT ON COLUMN runs.input_tokens IS 'As its end reports it, or what is known; see usage_partial.';
COMMENT ON COLUMN runs.output_tokens IS 'As its end reports it, or what is known; see usage_partial.';
COMMENT ON COLUMN runs.cache_read_tokens IS 'As its end reports it, or what is known; see usage_partial.';
COMMENT ON COLUMN runs.cache_write_tokens IS 'As its end reports it, or what is known; see usage_partial.';
COMMENT ON COLUMN runs.reasoning_tokens IS 'As its end reports it, or what is known; see usage_partial.';
