CREATE TABLE frames (
    context_id   text COLLATE "C" NOT NULL,
    version      bigint NOT NULL,
    frame_id     uuid NOT NULL,
    logged_at    timestamptz NOT NULL,
    recorded_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    produced_at  timestamptz,
    "offset"     bigint NOT NULL,
    partition    integer NOT NULL,
    type         text NOT NULL,
    outcome      text NOT NULL,
    reason       text,
    run_id       text COLLATE "C",
    tool_call_id text COLLATE "C",
    source       text,
    trace_id     text,
    causation_id text,
    chain        bytea NOT NULL,
    payload      json NOT NULL,
    CONSTRAINT frames_pkey PRIMARY KEY (context_id, version),
    CONSTRAINT frames_frame_id_key UNIQUE (context_id, frame_id),
    CONSTRAINT frames_version_check CHECK (version >= 1),
    CONSTRAINT frames_outcome_check CHECK (outcome IN ('applied', 'ignored', 'unknown', 'parked')),
    CONSTRAINT frames_reason_check CHECK ((outcome = 'ignored') = (reason IS NOT NULL)),
    CONSTRAINT frames_chain_check CHECK (octet_length(chain) = 32)
);

CREATE INDEX frames_interruptions ON frames (context_id, version) WHERE type IN ('InterruptionFrame', 'StartInterruptionFrame');

COMMENT ON TABLE frames IS
    'The log, queryable and complete: an archive from which everything else can be folded again.';
COMMENT ON COLUMN frames.context_id IS 'The conversation: the key of the record.';
COMMENT ON COLUMN frames.version IS 'The how-manieth frame of its context this is: 1, 2, 3 ... without gaps.';
COMMENT ON COLUMN frames.frame_id IS 'The frame''s id; a uuid5 of an id that is no uuid, or of its place on the log.';
COMMENT ON COLUMN frames.logged_at IS 'When the broker took it, but never before the frame that precedes it.';
COMMENT ON COLUMN frames.recorded_at IS 'When this row was written, by the database''s clock.';
COMMENT ON COLUMN frames.produced_at IS 'When its publisher made it, if that was written as a time.';
COMMENT ON COLUMN frames."offset" IS 'Where on its partition the record lies.';
COMMENT ON COLUMN frames.partition IS 'The partition of the record that was folded.';
COMMENT ON COLUMN frames.type IS 'The name of the frame.';
COMMENT ON COLUMN frames.outcome IS 'What became of it: applied (also if only recorded), ignored, unknown, or parked.';
COMMENT ON COLUMN frames.reason IS 'Why it was ignored, from a closed list of words.';
COMMENT ON COLUMN frames.run_id IS 'The run that it names.';
COMMENT ON COLUMN frames.tool_call_id IS 'The call that it names.';
COMMENT ON COLUMN frames.source IS 'Who published it, by its own account (CloudEvents).';
COMMENT ON COLUMN frames.trace_id IS 'The trace it belongs to: 32 hexadecimal digits (W3C).';
COMMENT ON COLUMN frames.causation_id IS 'The id of the effect or frame that it answers.';
COMMENT ON COLUMN frames.chain IS 'The link of the hash chain up to and with this frame; see verify_chain().';
COMMENT ON COLUMN frames.payload IS 'The value of the record, byte for byte.';
