CREATE FUNCTION live_workers() RETURNS SETOF workers
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT *
    FROM workers
    WHERE workers.stopped_at IS NULL
        AND workers.heartbeat_at > clock_timestamp() - workers.lease_secs * interval '1 s';
END;

COMMENT ON FUNCTION live_workers() IS
    'The workers that are alive: they have not left, and were heard of within their lease.';
