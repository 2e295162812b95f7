CREATE TABLE contexts (
    context_id         text COLLATE "C" NOT NULL,
    version            bigint NOT NULL,
    state_version      bigint NOT NULL,
    run_version        bigint NOT NULL DEFAULT 0,
    parked_version     bigint,
    started_at         timestamptz NOT NULL,
    last_at            timestamptz NOT NULL,
    parked_at          timestamptz,
    fold_version       integer NOT NULL,
    era                integer NOT NULL DEFAULT 1,
    message_count      integer NOT NULL DEFAULT 0,
    run_count          integer NOT NULL DEFAULT 0,
    call_count         integer NOT NULL DEFAULT 0,
    open_call_count    integer NOT NULL DEFAULT 0,
    interruption_count integer NOT NULL DEFAULT 0,
    unknown_count      integer NOT NULL DEFAULT 0,
    duplicate_count    integer NOT NULL DEFAULT 0,
    recording          boolean NOT NULL DEFAULT false,
    ended              boolean NOT NULL DEFAULT false,
    open_run_id        text COLLATE "C",
    parked_error       text,
    chain              bytea NOT NULL,
    state              json NOT NULL,
    CONSTRAINT contexts_pkey PRIMARY KEY (context_id),
    CONSTRAINT contexts_state_version_check CHECK (state_version <= version),
    CONSTRAINT contexts_chain_check CHECK (octet_length(chain) = 32),
    CONSTRAINT contexts_parked_check CHECK (
        (parked_version IS NULL) = (parked_at IS NULL)
        AND (parked_version IS NULL) = (parked_error IS NULL)
    )
) WITH (fillfactor = 80);

CREATE INDEX contexts_parked ON contexts (context_id) WHERE parked_version IS NOT NULL;

CREATE INDEX contexts_started_at ON contexts (started_at);

COMMENT ON TABLE contexts IS 'The head of every conversation.';
COMMENT ON COLUMN contexts.context_id IS 'The conversation: the key of its records on the log.';
COMMENT ON COLUMN contexts.version IS 'How many frames of it are stored.';
COMMENT ON COLUMN contexts.state_version IS
    'The version that state is of; the frames after it are folded again when the context is loaded.';
COMMENT ON COLUMN contexts.run_version IS 'The version that its newest run read, 0 before the first.';
COMMENT ON COLUMN contexts.parked_version IS 'Since which version its frames are stored unfolded.';
COMMENT ON COLUMN contexts.started_at IS 'When its first frame was logged.';
COMMENT ON COLUMN contexts.last_at IS 'When its newest frame was logged.';
COMMENT ON COLUMN contexts.parked_at IS 'When it was parked, by the database''s clock.';
COMMENT ON COLUMN contexts.fold_version IS 'The version of the fold that made the state; an older release refuses it.';
COMMENT ON COLUMN contexts.era IS 'The era of its current history.';
COMMENT ON COLUMN contexts.message_count IS 'Messages in it now.';
COMMENT ON COLUMN contexts.run_count IS 'Runs that were asked for.';
COMMENT ON COLUMN contexts.call_count IS 'Calls that were announced or started.';
COMMENT ON COLUMN contexts.open_call_count IS 'Calls of it that are not settled.';
COMMENT ON COLUMN contexts.interruption_count IS 'Interruptions.';
COMMENT ON COLUMN contexts.unknown_count IS 'Frames of it that no release could read yet.';
COMMENT ON COLUMN contexts.duplicate_count IS 'Records that repeated a frame of it and were left out.';
COMMENT ON COLUMN contexts.recording IS 'It mirrors a conversation that lives elsewhere; nothing is run for it.';
COMMENT ON COLUMN contexts.ended IS 'It was ended and not opened again.';
COMMENT ON COLUMN contexts.open_run_id IS 'The run that is open.';
COMMENT ON COLUMN contexts.parked_error IS 'What the fold or the database said when it was parked.';
COMMENT ON COLUMN contexts.chain IS 'The head of its hash chain, at version.';
COMMENT ON COLUMN contexts.state IS 'What of it is still open, as the fold stores it.';
