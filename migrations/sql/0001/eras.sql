CREATE TABLE eras (
    context_id text COLLATE "C" NOT NULL,
    valid_from bigint NOT NULL,
    era        integer NOT NULL,
    CONSTRAINT eras_pkey PRIMARY KEY (context_id, valid_from),
    CONSTRAINT eras_era_check CHECK (era >= 2)
);

COMMENT ON TABLE eras IS 'When the whole history of a context was replaced. An era lasts until the next one begins.';
COMMENT ON COLUMN eras.context_id IS 'The conversation.';
COMMENT ON COLUMN eras.valid_from IS 'The version that replaced the whole history.';
COMMENT ON COLUMN eras.era IS 'The number of the history that began; the first one is 1 and has no row here.';
