CREATE OR REPLACE FUNCTION version_at(context_id text, at timestamptz) RETURNS bigint
LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE
AS $$
#variable_conflict use_column
DECLARE
    -- The version sought is at least low and less than high. Times never decrease from one version to the next, so
    -- looking in the middle takes twenty steps for a million frames, and no index on times is needed.
    low bigint;
    high bigint;
    middle bigint;
BEGIN
    SELECT version + 1 INTO high FROM contexts WHERE context_id = version_at.context_id;
    -- The first frame after an erasure goes on from its version.
    SELECT coalesce(min(version) - 1, 0) INTO low FROM frames WHERE context_id = version_at.context_id;
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
    'The version that a context had at a time: that of the newest frame that the broker had taken by then. Before the '
    'first frame that is there, 0, or the version at which an earlier life of it was erased; null for a context that is '
    'not there.';
