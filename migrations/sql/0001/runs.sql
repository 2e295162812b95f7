CREATE TABLE runs (
    context_id         text COLLATE "C" NOT NULL,
    run_id             text COLLATE "C" NOT NULL,
    requested_version  bigint NOT NULL,
    opened_version     bigint,
    closed_version     bigint,
    requested_at       timestamptz NOT NULL,
    opened_at          timestamptz,
    started_at         timestamptz,
    first_text_at      timestamptz,
    closed_at          timestamptz,
    input_tokens       bigint,
    output_tokens      bigint,
    cache_read_tokens  bigint,
    cache_write_tokens bigint,
    reasoning_tokens   bigint,
    attempt            integer NOT NULL DEFAULT 0,
    trigger            text NOT NULL,
    status             text NOT NULL,
    worker             text,
    provider           text,
    model              text,
    finish_reason      text,
    error              text,
    error_code         text,
    request_sha256     text,
    CONSTRAINT runs_pkey PRIMARY KEY (context_id, run_id),
    CONSTRAINT runs_status_check CHECK (
        status IN ('requested', 'open', 'dropped', 'noted', 'ended', 'failed', 'interrupted', 'replaced',
            'context_ended')
    )
) WITH (fillfactor = 90);

COMMENT ON TABLE runs IS 'Every inference, folded from frames alone.';
COMMENT ON COLUMN runs.context_id IS 'The conversation.';
COMMENT ON COLUMN runs.run_id IS 'The run: a uuid5 of the context and of requested_version.';
COMMENT ON COLUMN runs.requested_version IS 'The version of the frame that asked for it first.';
COMMENT ON COLUMN runs.opened_version IS 'The version of the context that it reads; null before it opens.';
COMMENT ON COLUMN runs.closed_version IS 'The version of the frame that closed it.';
COMMENT ON COLUMN runs.requested_at IS 'When the frame that asked was logged.';
COMMENT ON COLUMN runs.opened_at IS 'When it was opened.';
COMMENT ON COLUMN runs.started_at IS 'When the start of its latest attempt was logged.';
COMMENT ON COLUMN runs.first_text_at IS 'When the first text of its latest attempt was logged.';
COMMENT ON COLUMN runs.closed_at IS 'When it was closed.';
COMMENT ON COLUMN runs.input_tokens IS 'As its end reports it.';
COMMENT ON COLUMN runs.output_tokens IS 'As its end reports it.';
COMMENT ON COLUMN runs.cache_read_tokens IS 'As its end reports it.';
COMMENT ON COLUMN runs.cache_write_tokens IS 'As its end reports it.';
COMMENT ON COLUMN runs.reasoning_tokens IS 'As its end reports it.';
COMMENT ON COLUMN runs.attempt IS 'Its latest attempt; 0 before the first, and for an answer that names no run.';
COMMENT ON COLUMN runs.trigger IS 'The type of the frame that asked for it first.';
COMMENT ON COLUMN runs.status IS
    'requested, open, dropped before it opened, noted (a recording), or how it was closed: ended, failed, '
    'interrupted, replaced, context_ended.';
COMMENT ON COLUMN runs.worker IS 'Who answers, by its own account.';
COMMENT ON COLUMN runs.provider IS 'Whose model.';
COMMENT ON COLUMN runs.model IS 'Which model.';
COMMENT ON COLUMN runs.finish_reason IS 'stop, tool_calls, length, content_filter, or error.';
COMMENT ON COLUMN runs.error IS 'The message of the latest error of it.';
COMMENT ON COLUMN runs.error_code IS 'The code of that error.';
COMMENT ON COLUMN runs.request_sha256 IS 'The hash of the request as the provider got it.';
