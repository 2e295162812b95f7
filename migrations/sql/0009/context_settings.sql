COMMENT ON COLUMN context_settings.name IS
    'tools, tool_choice, settings, prompt_caching, skip_tts, recording, ended, limits, or mirror (who keeps '
    'the history elsewhere).';
