ALTER TABLE tool_calls
    ADD COLUMN dispatched_version  bigint,
    ADD COLUMN interrupted_version bigint,
    ADD COLUMN resolved_version    bigint,
    ADD COLUMN timeout_secs        double precision,
    ADD COLUMN safe_to_retry       boolean,
    ADD COLUMN waiting_for         text,
    ADD COLUMN waiting_deadline    timestamptz,
    ADD COLUMN builtin             boolean NOT NULL DEFAULT false,
    DROP CONSTRAINT tool_calls_status_check,
    ADD CONSTRAINT tool_calls_status_check CHECK (
        status IN ('announced', 'dispatched', 'running', 'waiting', 'done', 'failed', 'ambiguous', 'cancelled',
            'forgotten')
    );

-- The oldest first, so that whoever looks for what is overdue reads nothing else.
CREATE INDEX tool_calls_unsettled ON tool_calls (requested_at) WHERE status IN ('announced', 'dispatched', 'running');

CREATE INDEX tool_calls_waiting ON tool_calls (waiting_deadline) WHERE status = 'waiting';

CREATE INDEX tool_calls_ambiguous ON tool_calls (context_id, requested_version, ordinal)
WHERE status = 'ambiguous' AND resolved_version IS NULL;

COMMENT ON COLUMN tool_calls.status IS
    'announced, dispatched, running, waiting (for a person), or how it ended: done, failed, ambiguous (it may or may '
    'not have happened), cancelled, forgotten.';
COMMENT ON COLUMN tool_calls.dispatched_version IS
    'The version at which it was committed and its turn; its effect names it.';
COMMENT ON COLUMN tool_calls.interrupted_version IS
    'The version of the interruption that cancels it; its worker still has to say what became of it.';
COMMENT ON COLUMN tool_calls.resolved_version IS 'The version at which a person said what became of an ambiguous call.';
COMMENT ON COLUMN tool_calls.timeout_secs IS 'The seconds that it may take since it was announced, as its start says.';
COMMENT ON COLUMN tool_calls.safe_to_retry IS 'Running it twice does no harm; null before it starts.';
COMMENT ON COLUMN tool_calls.waiting_for IS 'Whom or what it waits for, as its worker says.';
COMMENT ON COLUMN tool_calls.waiting_deadline IS
    'Until when it waits; null for no end, or for one that cannot be read as a time.';
COMMENT ON COLUMN tool_calls.builtin IS 'It is one of our own tools, such as the one that cancels a call.';
