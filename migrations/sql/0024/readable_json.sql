CREATE FUNCTION readable_json(document json) RETURNS json
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE strpos(document::text, '\u')
    WHEN 0 THEN document
    -- A NUL and half of a surrogate pair are legal JSON and no text of PostgreSQL's. Backslashes are spelt out first, so
    -- that what then looks like an escape is one.
    ELSE regexp_replace(
        replace(document::text, '\\', '\u005c'),
        '\\u0000'
        '|\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])'
        '|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2}',
        '\\ufffd',
        'g'
    )::json
END;

COMMENT ON FUNCTION readable_json(json) IS
    'A JSON document in which each character that PostgreSQL has no text for is the replacement character, so that its '
    'operators work on every payload and message.';
