CREATE OR REPLACE VIEW lag WITH (security_invoker = true) AS
SELECT
    projection,
    topic,
    partition,
    next_offset,
    -- The end was seen a moment ago; what was read since may lie beyond it.
    CASE WHEN end_offset IS NOT NULL THEN greatest(end_offset - next_offset, 0) END AS gap,
    CASE
        WHEN next_offset < end_offset THEN date_trunc('second', greatest(now() - last_logged_at, interval '0'))
        WHEN end_offset IS NOT NULL THEN interval '0'
    END AS lag
FROM projections
WHERE sealed_at IS NULL
ORDER BY projections.projection, projections.topic, projections.partition;
