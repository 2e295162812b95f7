ALTER TABLE runs
    ADD COLUMN heard_version   bigint,
    ADD COLUMN started_version bigint,
    ADD COLUMN said            text;

-- The oldest first, so that whoever looks for what is overdue reads nothing else.
CREATE INDEX runs_open ON runs (opened_at) WHERE status = 'open';

COMMENT ON COLUMN runs.heard_version IS
    'The version at which the user stopped speaking, if it answers a turn of the user.';
COMMENT ON COLUMN runs.started_version IS 'The version of the start of its latest attempt.';
COMMENT ON COLUMN runs.said IS
    'What it was saying when it was interrupted, where the context keeps only what was heard of that.';
