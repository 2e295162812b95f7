CREATE TABLE workers (
    worker_id    text COLLATE "C" NOT NULL,
    started_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    connected_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    heartbeat_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    stopped_at   timestamptz,
    lease_secs   double precision NOT NULL,
    slots        integer NOT NULL,
    pid          integer NOT NULL,
    serves_all   boolean NOT NULL DEFAULT false,
    service      text COLLATE "C" NOT NULL,
    kind         text NOT NULL,
    host         text NOT NULL,
    serves       text[] NOT NULL DEFAULT '{}',
    offers       json NOT NULL,
    CONSTRAINT workers_pkey PRIMARY KEY (worker_id),
    CONSTRAINT workers_kind_check CHECK (kind IN ('inference', 'functions', 'timekeeper')),
    CONSTRAINT workers_lease_secs_check CHECK (lease_secs > 0)
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

-- No index on heartbeat_at: it changes all the time, and this one leaves few rows to look at.
CREATE INDEX workers_present ON workers (worker_id) WHERE stopped_at IS NULL;

COMMENT ON TABLE workers IS
    'Every life of every worker. It is alive while stopped_at is null and heartbeat_at younger than its lease.';
COMMENT ON COLUMN workers.worker_id IS 'One life of one process: a restart is another worker.';
COMMENT ON COLUMN workers.started_at IS 'When it registered, by the database''s clock.';
COMMENT ON COLUMN workers.connected_at IS
    'Since when it has been connected: it judges nobody before that is a whole lease ago.';
COMMENT ON COLUMN workers.heartbeat_at IS 'When it was last heard of, by the database''s clock.';
COMMENT ON COLUMN workers.stopped_at IS
    'When it left; of one that died long ago, when it was last heard of. Null while it may be alive.';
COMMENT ON COLUMN workers.lease_secs IS 'How many seconds after its last heartbeat it is taken for dead.';
COMMENT ON COLUMN workers.slots IS 'How much it does at once.';
COMMENT ON COLUMN workers.pid IS 'Its process on that host.';
COMMENT ON COLUMN workers.serves_all IS 'It takes what no live worker lists: a catch-all, or any model.';
COMMENT ON COLUMN workers.service IS 'The service that it belongs to: what shares its work has the same name.';
COMMENT ON COLUMN workers.kind IS 'inference, functions, or timekeeper.';
COMMENT ON COLUMN workers.host IS 'Where it runs.';
COMMENT ON COLUMN workers.serves IS 'The functions or models that it serves, by name.';
COMMENT ON COLUMN workers.offers IS
    'The functions with their schemas and options, or how an inference service makes its requests.';
