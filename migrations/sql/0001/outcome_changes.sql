CREATE TABLE outcome_changes (
    context_id  text COLLATE "C" NOT NULL,
    version     bigint NOT NULL,
    changed_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    old_outcome text NOT NULL,
    old_reason  text,
    new_outcome text NOT NULL,
    new_reason  text,
    changed_by  text NOT NULL DEFAULT SESSION_USER,
    why         text NOT NULL,
    CONSTRAINT outcome_changes_pkey PRIMARY KEY (context_id, version, changed_at)
);

COMMENT ON TABLE outcome_changes IS
    'Every change of a frame''s outcome after it was stored; written by settle_outcome().';
COMMENT ON COLUMN outcome_changes.context_id IS 'The conversation.';
COMMENT ON COLUMN outcome_changes.version IS 'The frame.';
COMMENT ON COLUMN outcome_changes.changed_at IS 'When, by the database''s clock.';
COMMENT ON COLUMN outcome_changes.old_outcome IS 'What the frame''s outcome was.';
COMMENT ON COLUMN outcome_changes.old_reason IS 'And why.';
COMMENT ON COLUMN outcome_changes.new_outcome IS 'What it became.';
COMMENT ON COLUMN outcome_changes.new_reason IS 'And why.';
COMMENT ON COLUMN outcome_changes.changed_by IS 'Who: the database user of the session.';
COMMENT ON COLUMN outcome_changes.why IS 'For what purpose, in the words of whoever did it.';
