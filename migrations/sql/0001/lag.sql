CREATE VIEW lag WITH (security_invoker = true) AS
SELECT
    excerpt(projection, 12) AS projection,
    excerpt(topic, 20) AS topic,
    partition,
    next_offset,
    -- The end was seen a moment ago; what was read since may lie beyond it.
    CASE WHEN end_offset IS NOT NULL THEN greatest(end_offset - next_offset, 0) END AS gap,
    CASE
        WHEN next_offset < end_offset THEN date_trunc('second', greatest(now() - last_logged_at, interval '0'))
        WHEN end_offset IS NOT NULL THEN interval '0'
    END AS lag
FROM projections
ORDER BY projections.projection, projections.topic, projections.generation, projections.partition;

COMMENT ON VIEW lag IS 'How far each projection is behind the log, by partition.';
COMMENT ON COLUMN lag.projection IS 'What reads.';
COMMENT ON COLUMN lag.topic IS 'What it reads.';
COMMENT ON COLUMN lag.partition IS 'The partition.';
COMMENT ON COLUMN lag.next_offset IS 'The offset to be read next.';
COMMENT ON COLUMN lag.gap IS 'Records behind, by the end that the owner saw last; null if it has not looked yet.';
COMMENT ON COLUMN lag.lag IS 'Time behind: the age of the last record that was read, if there are later ones.';
