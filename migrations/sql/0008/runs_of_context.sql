-- The latest runs of a conversation, and those of its day: what limits are counted from.
CREATE INDEX runs_of_context ON runs (context_id, requested_at);

COMMENT ON COLUMN context_settings.name IS
    'tools, tool_choice, settings, prompt_caching, skip_tts, recording, ended, or limits.';
