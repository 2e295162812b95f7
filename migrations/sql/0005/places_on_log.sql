CREATE FUNCTION places_on_log(context_id text, version bigint) RETURNS json
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT coalesce(json_agg(lain ORDER BY lain.generation, lain.partition), '[]')
    FROM (
        SELECT
            frames.partition,
            frames.generation,
            min(frames."offset") AS first_offset,
            max(frames."offset") AS last_offset,
            count(*) AS records
        FROM frames
        WHERE frames.context_id = places_on_log.context_id AND frames.version <= places_on_log.version
            -- 0: imported, and on no log of this database.
            AND frames.generation > 0
        GROUP BY frames.partition, frames.generation
    ) AS lain;
END;

COMMENT ON FUNCTION places_on_log(text, bigint) IS
    'Where the frames of a conversation up to a version lie on the log: a list of {partition, generation, first_offset, '
    'last_offset, records}.';
