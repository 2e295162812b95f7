CREATE FUNCTION context_at_time(context_id text, at timestamptz) RETURNS json
LANGUAGE sql STABLE STRICT PARALLEL SAFE
RETURN context_at(context_id, version_at(context_id, at));

COMMENT ON FUNCTION context_at_time(text, timestamptz) IS
    'The context as it was at a time, by the broker''s clock; see context_at() and version_at().';
