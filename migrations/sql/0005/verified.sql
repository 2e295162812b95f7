CREATE TABLE verified (
    context_id   text COLLATE "C" NOT NULL,
    version      bigint NOT NULL,
    verified_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    fold_version integer NOT NULL,
    verified_by  text NOT NULL DEFAULT SESSION_USER,
    chain        bytea NOT NULL,
    head         json NOT NULL,
    state        json NOT NULL,
    CONSTRAINT verified_pkey PRIMARY KEY (context_id),
    -- What is remembered of a conversation goes with it.
    CONSTRAINT verified_context_id_fkey FOREIGN KEY (context_id) REFERENCES contexts ON DELETE CASCADE,
    CONSTRAINT verified_version_check CHECK (version >= 1),
    CONSTRAINT verified_chain_check CHECK (octet_length(chain) = 32)
);

COMMENT ON TABLE verified IS
    'Up to which version each conversation was verified, without a difference, so that `frameledger verify` need not read '
    'it again. It is no proof: whoever can write the tables can write this one.';
COMMENT ON COLUMN verified.context_id IS 'The conversation.';
COMMENT ON COLUMN verified.version IS 'The version up to which its rows were verified.';
COMMENT ON COLUMN verified.verified_at IS 'When that was, by the database''s clock.';
COMMENT ON COLUMN verified.fold_version IS 'The version of the fold that its frames were folded by.';
COMMENT ON COLUMN verified.verified_by IS 'The database user of the session.';
COMMENT ON COLUMN verified.chain IS 'The link of its hash chain at that version.';
COMMENT ON COLUMN verified.head IS 'The counters at that version.';
COMMENT ON COLUMN verified.state IS 'The state at that version, from which the fold goes on.';

GRANT SELECT ON verified TO frameledger_projector, frameledger_worker, frameledger_operator, frameledger_reader;
GRANT INSERT, UPDATE, DELETE ON verified TO frameledger_operator;
