CREATE TABLE prices (
    model text COLLATE "C" NOT NULL,
    provider text COLLATE "C" NOT NULL DEFAULT '',
    valid_from timestamptz NOT NULL DEFAULT '-infinity',
    input numeric NOT NULL,
    output numeric NOT NULL,
    cache_read numeric,
    cache_write numeric,
    reasoning numeric,
    currency text NOT NULL,
    CONSTRAINT prices_pkey PRIMARY KEY (model, provider, valid_from),
    CONSTRAINT prices_amounts_check CHECK (
        input >= 0 AND output >= 0 AND cache_read >= 0 AND cache_write >= 0 AND reasoning >= 0
    )
);

COMMENT ON TABLE prices IS
    'What a million tokens of a model cost since when, as you say: nothing is in it before that. facts_runs.cost '
    'follows from it.';
COMMENT ON COLUMN prices.model IS 'The model, named as in runs.model.';
COMMENT ON COLUMN prices.provider IS
    'The provider, named as in runs.provider; empty for any. One that is named counts before the one for any.';
COMMENT ON COLUMN prices.valid_from IS 'Since when; until the next one of that model and provider.';
COMMENT ON COLUMN prices.input IS 'Of tokens read.';
COMMENT ON COLUMN prices.output IS 'Of tokens written.';
COMMENT ON COLUMN prices.cache_read IS 'Of tokens read from the provider''s cache; null: as input.';
COMMENT ON COLUMN prices.cache_write IS 'Of tokens written to the provider''s cache; null: as input.';
COMMENT ON COLUMN prices.reasoning IS 'Of tokens of thoughts; null: as output.';
COMMENT ON COLUMN prices.currency IS 'The currency, such as EUR.';
