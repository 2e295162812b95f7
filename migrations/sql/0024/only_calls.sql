CREATE OR REPLACE FUNCTION only_calls(message json) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN makes_calls(message)
    AND CASE json_typeof(readable_json(message) -> 'content')
        -- Parts, of which none has text that is not blank.
        WHEN 'array' THEN json_text(message, 'content') !~ '"text"\s*:\s*"(\s|\\[nrt])*([^"\s\\]|\\[^nrt])'
        ELSE coalesce(json_text(message, 'content'), '') !~ '\S'
    END;
