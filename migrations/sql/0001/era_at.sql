CREATE FUNCTION era_at(context_id text, version bigint) RETURNS integer
LANGUAGE sql STABLE PARALLEL SAFE
RETURN coalesce(
    (
        SELECT eras.era
        FROM eras
        WHERE eras.context_id = era_at.context_id AND eras.valid_from <= era_at.version
        ORDER BY eras.valid_from DESC
        LIMIT 1
    ),
    1
);

COMMENT ON FUNCTION era_at(text, bigint) IS 'The era of a context at a version.';
