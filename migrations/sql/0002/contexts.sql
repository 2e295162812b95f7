ALTER TABLE contexts
    ADD COLUMN turn_opened_version bigint,
    ADD COLUMN turn_waits          boolean,
    ADD COLUMN bot_since_version   bigint,
    ADD CONSTRAINT contexts_turn_check CHECK ((turn_opened_version IS NULL) = (turn_waits IS NULL));

CREATE INDEX contexts_speaking ON contexts (context_id)
WHERE turn_opened_version IS NOT NULL OR bot_since_version IS NOT NULL;

COMMENT ON COLUMN contexts.turn_opened_version IS 'The version that opened the user''s turn; null if none is open.';
COMMENT ON COLUMN contexts.turn_waits IS
    'That turn was stopped and waits for its final words; null if no turn is open.';
COMMENT ON COLUMN contexts.bot_since_version IS 'The version since which the bot speaks; null if it does not.';
