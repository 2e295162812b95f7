-- Other types need another view.
DROP VIEW services;

CREATE VIEW services WITH (security_invoker = true) AS
SELECT
    worker.service,
    worker.kind,
    count(*) AS workers,
    sum(worker.slots) AS slots,
    sum(busy.claims)::bigint AS busy,
    extract(epoch FROM clock_timestamp() - max(worker.heartbeat_at))::double precision AS heard_s,
    excerpt(
        concat_ws(
            ', ',
            (
                SELECT string_agg(DISTINCT name, ', ')
                FROM live_workers() AS other
                CROSS JOIN LATERAL unnest(other.serves) AS name
                WHERE other.service = worker.service AND other.kind = worker.kind
            ),
            CASE WHEN bool_or(worker.serves_all) THEN 'what nobody lists' END
        ),
        25
    ) AS serves
FROM live_workers() AS worker
CROSS JOIN LATERAL (
    SELECT count(*) AS claims
    FROM claims
    WHERE claims.worker_id = worker.worker_id AND claims.finished_at IS NULL
) AS busy
GROUP BY worker.service, worker.kind
ORDER BY worker.service, worker.kind;

COMMENT ON VIEW services IS 'The services that have live workers, and how busy these are.';
COMMENT ON COLUMN services.service IS 'The service.';
COMMENT ON COLUMN services.kind IS 'inference, functions, or timekeeper.';
COMMENT ON COLUMN services.workers IS 'How many live workers it has.';
COMMENT ON COLUMN services.slots IS 'How much they can do at once.';
COMMENT ON COLUMN services.busy IS 'How much they are doing.';
COMMENT ON COLUMN services.heard_s IS 'Seconds since any of them was heard of.';
COMMENT ON COLUMN services.serves IS
    'The functions or models that they list; what nobody lists, if they take that too.';

GRANT SELECT ON services TO frameledger_projector, frameledger_worker, frameledger_operator, frameledger_reader;
