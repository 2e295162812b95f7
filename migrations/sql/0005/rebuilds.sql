CREATE TABLE rebuilds (
    number        bigint GENERATED ALWAYS AS IDENTITY,
    selection     text COLLATE "C" NOT NULL,
    source        text COLLATE "C" NOT NULL,
    applied       boolean NOT NULL,
    fold_version  integer NOT NULL,
    started_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    started_by    text NOT NULL DEFAULT SESSION_USER,
    updated_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at      timestamptz,
    reached       text COLLATE "C",
    read_count    bigint NOT NULL DEFAULT 0,
    differ_count  bigint NOT NULL DEFAULT 0,
    failed_count  bigint NOT NULL DEFAULT 0,
    rebuilt_count bigint NOT NULL DEFAULT 0,
    CONSTRAINT rebuilds_pkey PRIMARY KEY (number),
    CONSTRAINT rebuilds_selection_check CHECK (selection IN ('all', 'unknown')),
    CONSTRAINT rebuilds_source_check CHECK (source IN ('frames', 'kafka'))
);

COMMENT ON TABLE rebuilds IS
    'Every `frameledger rebuild` of many conversations, and how far it is: one that was interrupted goes on from there.';
COMMENT ON COLUMN rebuilds.number IS 'Its number.';
COMMENT ON COLUMN rebuilds.selection IS 'Which conversations: all, or those with frames of unknown type.';
COMMENT ON COLUMN rebuilds.source IS
    'Where frames came from: frames, the table; or kafka, the log, from which missing rows were restored.';
COMMENT ON COLUMN rebuilds.applied IS 'Whether rows were replaced, or only compared.';
COMMENT ON COLUMN rebuilds.fold_version IS 'The fold.';
COMMENT ON COLUMN rebuilds.started_at IS 'When it began, by the database''s clock.';
COMMENT ON COLUMN rebuilds.started_by IS 'The database user of the session that began it.';
COMMENT ON COLUMN rebuilds.updated_at IS 'When this row was written last.';
COMMENT ON COLUMN rebuilds.ended_at IS 'When it was through; null until then.';
COMMENT ON COLUMN rebuilds.reached IS
    'The conversation up to which all are done, in the order of their ids; null before the first.';
COMMENT ON COLUMN rebuilds.read_count IS 'Number of conversations that were folded again.';
COMMENT ON COLUMN rebuilds.differ_count IS 'Number of those whose tables differed.';
COMMENT ON COLUMN rebuilds.failed_count IS 'Number of those that cannot be folded again, or belong to a newer release.';
COMMENT ON COLUMN rebuilds.rebuilt_count IS 'Number of those whose rows were replaced.';

GRANT SELECT ON rebuilds
TO frameledger_projector, frameledger_worker, frameledger_operator, frameledger_reader;
GRANT INSERT, UPDATE ON rebuilds TO frameledger_operator;

-- A rebuild replaces what is projected, and restores frames that are missing, if the chain proves them. Stored ones
-- change only through settle_outcome().
GRANT INSERT ON frames TO frameledger_operator;
GRANT INSERT, DELETE ON messages, eras, context_settings, runs, tool_calls, outbox TO frameledger_operator;
GRANT UPDATE ON messages, context_settings, runs, tool_calls, contexts TO frameledger_operator;
