CREATE TABLE messages (
    context_id text COLLATE "C" NOT NULL,
    era        integer NOT NULL,
    position   integer NOT NULL,
    valid_from bigint NOT NULL,
    valid_to   bigint NOT NULL DEFAULT 9223372036854775807,
    role       text,
    text       text,
    run_id     text COLLATE "C",
    message    json NOT NULL,
    CONSTRAINT messages_pkey PRIMARY KEY (context_id, era, position, valid_from),
    CONSTRAINT messages_validity_check CHECK (valid_from >= 1 AND valid_from < valid_to)
);

COMMENT ON TABLE messages IS
    'Every message, one row for each time that it read differently. The context at version v is its era''s '
    'rows with valid_from <= v < valid_to.';
COMMENT ON COLUMN messages.context_id IS 'The conversation.';
COMMENT ON COLUMN messages.era IS 'The history that it belongs to; see eras.';
COMMENT ON COLUMN messages.position IS 'Its place in the history: given once, never reused or moved. There are gaps.';
COMMENT ON COLUMN messages.valid_from IS 'The first version of the context at which it reads so.';
COMMENT ON COLUMN messages.valid_to IS
    'The first version at which it does not any more; the largest bigint while it does.';
COMMENT ON COLUMN messages.role IS 'Who speaks: system, user, assistant, tool, developer ...';
COMMENT ON COLUMN messages.text IS 'What a person reads of it: its text, or the calls that it makes.';
COMMENT ON COLUMN messages.run_id IS 'The run that said it, if one did.';
COMMENT ON COLUMN messages.message IS 'The message as a model gets it.';
