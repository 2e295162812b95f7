CREATE FUNCTION json_text(document json, name text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE strpos(document::text, '\u')
    WHEN 0 THEN document ->> name
    -- A NUL and half of a surrogate pair are legal JSON and no text of PostgreSQL's. Backslashes are spelt out first, so
    -- that what then looks like an escape is one.
    ELSE regexp_replace(
        replace(document::text, '\\', '\u005c'),
        '\\u0000'
        '|\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])'
        '|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2}',
        '\\ufffd',
        'g'
    )::json ->> name
END;

COMMENT ON FUNCTION json_text(json, text) IS
    'A field of a JSON object as text, such as one of a frame''s payload; null if it is absent. It takes every payload: '
    'a character that PostgreSQL has no text for is shown as the replacement character.';
