CREATE TABLE tool_calls (
    context_id        text COLLATE "C" NOT NULL,
    requested_version bigint NOT NULL,
    started_version   bigint,
    settled_version   bigint,
    requested_at      timestamptz NOT NULL,
    dispatched_at     timestamptz,
    started_at        timestamptz,
    settled_at        timestamptz,
    ordinal           integer NOT NULL,
    attempt           integer NOT NULL DEFAULT 0,
    progress_count    integer NOT NULL DEFAULT 0,
    synchronous       boolean,
    tool_call_id      text COLLATE "C" NOT NULL,
    function_name     text NOT NULL,
    status            text NOT NULL,
    run_id            text COLLATE "C",
    group_id          text COLLATE "C",
    worker            text,
    arguments         json NOT NULL,
    result            json,
    CONSTRAINT tool_calls_pkey PRIMARY KEY (context_id, requested_version, ordinal),
    CONSTRAINT tool_calls_status_check CHECK (
        status IN ('announced', 'dispatched', 'running', 'waiting', 'done', 'cancelled', 'forgotten')
    )
) WITH (fillfactor = 90);

COMMENT ON TABLE tool_calls IS 'Every call of a function, folded from frames alone.';
COMMENT ON COLUMN tool_calls.context_id IS 'The conversation.';
COMMENT ON COLUMN tool_calls.requested_version IS 'The version of the frame that announced it, or else started it.';
COMMENT ON COLUMN tool_calls.started_version IS 'The version of its first start.';
COMMENT ON COLUMN tool_calls.settled_version IS 'The version of the frame that settled it.';
COMMENT ON COLUMN tool_calls.requested_at IS 'When the frame that announced it was logged.';
COMMENT ON COLUMN tool_calls.dispatched_at IS 'When it was committed and its turn.';
COMMENT ON COLUMN tool_calls.started_at IS 'When its first start was logged.';
COMMENT ON COLUMN tool_calls.settled_at IS 'When it was settled.';
COMMENT ON COLUMN tool_calls.ordinal IS 'Its place among the calls of that frame, from 0.';
COMMENT ON COLUMN tool_calls.attempt IS 'Its latest attempt; 0 before it starts, and for a start that names none.';
COMMENT ON COLUMN tool_calls.progress_count IS 'Results in between.';
COMMENT ON COLUMN tool_calls.synchronous IS 'An interruption cancels it; null before it starts.';
COMMENT ON COLUMN tool_calls.tool_call_id IS
    'The id that its provider gave; it may come again once this call is settled.';
COMMENT ON COLUMN tool_calls.function_name IS 'The function.';
COMMENT ON COLUMN tool_calls.status IS
    'announced, dispatched, running, waiting (for a person), done, cancelled, or forgotten.';
COMMENT ON COLUMN tool_calls.run_id IS 'The run that made it.';
COMMENT ON COLUMN tool_calls.group_id IS 'What it was announced together with.';
COMMENT ON COLUMN tool_calls.worker IS 'Who runs it, by its own account.';
COMMENT ON COLUMN tool_calls.arguments IS 'The arguments; a string if they came as text.';
COMMENT ON COLUMN tool_calls.result IS 'Its final result; null for none.';
