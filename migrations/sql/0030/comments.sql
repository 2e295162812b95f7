COMMENT ON COLUMN facts_conversations.input_tokens IS
    'Input tokens of its runs, of copies too (facts_runs.is_copy); null if no run reports any.';
COMMENT ON COLUMN facts_conversations.output_tokens IS
    'Output tokens of its runs, of copies too; null if no run reports any.';
COMMENT ON COLUMN facts_conversations.cost IS
    'The cost of its runs by the table prices, of copies too, without runs that have no price. Null if no run has one, or '
    'if they are in several currencies.';
