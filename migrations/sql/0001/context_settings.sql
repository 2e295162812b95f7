CREATE TABLE context_settings (
    context_id text COLLATE "C" NOT NULL,
    name       text COLLATE "C" NOT NULL,
    valid_from bigint NOT NULL,
    value      json NOT NULL,
    CONSTRAINT context_settings_pkey PRIMARY KEY (context_id, name, valid_from)
);

COMMENT ON TABLE context_settings IS
    'What a request takes along beside the messages, and the life of the context. A name without a row has '
    'its default: no tools, no choice, no settings, false.';
COMMENT ON COLUMN context_settings.context_id IS 'The conversation.';
COMMENT ON COLUMN context_settings.name IS
    'tools, tool_choice, settings, prompt_caching, skip_tts, recording, or ended.';
COMMENT ON COLUMN context_settings.valid_from IS
    'The first version with this value; it holds until the next row of that name.';
COMMENT ON COLUMN context_settings.value IS 'The value.';
