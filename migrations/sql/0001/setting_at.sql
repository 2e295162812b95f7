CREATE FUNCTION setting_at(context_id text, name text, version bigint) RETURNS json
LANGUAGE sql STABLE PARALLEL SAFE
RETURN (
    SELECT context_settings.value
    FROM context_settings
    WHERE context_settings.context_id = setting_at.context_id
        AND context_settings.name = setting_at.name
        AND context_settings.valid_from <= setting_at.version
    ORDER BY context_settings.valid_from DESC
    LIMIT 1
);

COMMENT ON FUNCTION setting_at(text, text, bigint) IS
    'One of a context''s settings at a version, by its name in context_settings; null before it was first set.';
