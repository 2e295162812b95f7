CREATE TABLE claims (
    effect_id         text COLLATE "C" NOT NULL,
    version           bigint NOT NULL,
    requested_version bigint,
    claimed_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    taken_at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    released_at       timestamptz,
    finished_at       timestamptz,
    ordinal           integer,
    attempt           integer NOT NULL DEFAULT 1,
    kind              text NOT NULL,
    context_id        text COLLATE "C" NOT NULL,
    run_id            text COLLATE "C",
    tool_call_id      text COLLATE "C",
    service           text COLLATE "C" NOT NULL,
    worker_id         text COLLATE "C" NOT NULL,
    finish            text,
    CONSTRAINT claims_pkey PRIMARY KEY (effect_id),
    CONSTRAINT claims_kind_check CHECK (
        CASE kind
            WHEN 'run' THEN run_id IS NOT NULL AND requested_version IS NULL AND tool_call_id IS NULL
            WHEN 'call' THEN requested_version IS NOT NULL AND ordinal IS NOT NULL AND tool_call_id IS NOT NULL
            ELSE false
        END
    ),
    CONSTRAINT claims_attempt_check CHECK (attempt >= 1),
    CONSTRAINT claims_finish_check CHECK (finish IN ('done', 'over', 'given_up')),
    CONSTRAINT claims_finished_check CHECK ((finish IS NULL) = (finished_at IS NULL))
) WITH (fillfactor = 80);

CREATE INDEX claims_unfinished ON claims (worker_id) WHERE finished_at IS NULL;

CREATE INDEX claims_released ON claims (taken_at) WHERE finished_at IS NULL AND released_at IS NOT NULL;

CREATE INDEX claims_claimed_at ON claims (claimed_at);

CREATE INDEX claims_of_context ON claims (context_id, version);

COMMENT ON TABLE claims IS 'Who runs what: one row for each effect that a worker took. Kept for thirty days.';
COMMENT ON COLUMN claims.effect_id IS 'The effect: the second worker that wants it finds it taken.';
COMMENT ON COLUMN claims.version IS 'The version of the context that the effect names.';
COMMENT ON COLUMN claims.requested_version IS 'Of a call: the version of the frame that announced it.';
COMMENT ON COLUMN claims.claimed_at IS 'When it was first taken, by the database''s clock.';
COMMENT ON COLUMN claims.taken_at IS 'When its latest attempt was.';
COMMENT ON COLUMN claims.released_at IS 'When its worker gave it back for another one to take; null once it is taken.';
COMMENT ON COLUMN claims.finished_at IS 'When nothing was left to do.';
COMMENT ON COLUMN claims.ordinal IS 'Of a call: its place among the calls of that frame.';
COMMENT ON COLUMN claims.attempt IS 'Its latest attempt, from 1: the only source of attempt numbers.';
COMMENT ON COLUMN claims.kind IS 'run or call.';
COMMENT ON COLUMN claims.context_id IS 'The conversation.';
COMMENT ON COLUMN claims.run_id IS 'Of a run: its id.';
COMMENT ON COLUMN claims.tool_call_id IS 'Of a call: its id.';
COMMENT ON COLUMN claims.service IS 'The service of the worker that has it.';
COMMENT ON COLUMN claims.worker_id IS 'The worker that has it.';
COMMENT ON COLUMN claims.finish IS 'done, over (what it was for had ended), or given_up.';
