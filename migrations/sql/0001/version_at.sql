CREATE FUNCTION version_at(context_id text, at timestamptz) RETURNS bigint
LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE
AS $$
#variable_conflict use_column
DECLARE
    -- The version sought is at least low and less than high. Times never decrease from one version to the next, so
    -- looking in the middle takes twenty steps for a million frames, and no index on times is needed.
    low bigint := 0;
    high bigint;
    middle bigint;
BEGIN
    SELECT version + 1 INTO high FROM contexts WHERE context_id = version_at.context_id;
    WHILE low + 1 < high LOOP
        middle := (low + high) / 2;
        IF (
            SELECT logged_at <= version_at.at
            FROM frames
            WHERE context_id = version_at.context_id AND version = middle
        ) THEN
            low := middle;
        ELSE
            high := middle;
        END IF;
    END LOOP;
    RETURN CASE WHEN high IS NOT NULL THEN low END;
END
$$;

COMMENT ON FUNCTION version_at(text, timestamptz) IS
    'The version that a context had at a time: the frames that the broker had taken by then. 0 before the first; null '
    'for a context that is not there.';
