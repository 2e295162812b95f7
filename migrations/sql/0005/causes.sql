-- A client may write any id, so the way may lead nowhere or in a circle. `mark` is the frame at depth 1, 2, 4, 8 and so
-- on: a walk that comes to it again has gone round, after a few times as many steps as there are frames on it.
CREATE FUNCTION causes(context_id text, version bigint)
RETURNS TABLE (version bigint, frame_id uuid, type text, source text, depth bigint)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    WITH RECURSIVE way AS (
        SELECT frame.version, frame.frame_id, frame.type, frame.source, frame.causation_id, 0::bigint AS depth,
            frame.frame_id AS mark
        FROM frames AS frame
        WHERE frame.context_id = causes.context_id AND frame.version = causes.version
        UNION ALL
        SELECT cause.version, cause.frame_id, cause.type, cause.source, cause.causation_id, way.depth + 1,
            CASE WHEN (way.depth + 1) & way.depth = 0 THEN cause.frame_id ELSE way.mark END
        FROM way
        JOIN frames AS cause
            ON cause.context_id = causes.context_id AND cause.frame_id = way.causation_id
                AND cause.frame_id <> way.mark
    )
    SELECT way.version, way.frame_id, way.type, way.source, min(way.depth)
    FROM way
    GROUP BY way.version, way.frame_id, way.type, way.source
    ORDER BY min(way.depth);
END;

COMMENT ON FUNCTION causes(text, bigint) IS
    'Why there is the frame at a version: the frame itself at depth 0, its cause at 1, the cause of that at 2, and so on '
    'to a frame without a cause, or whose cause is not there. Each frame once, also where causes lead in a circle.';
