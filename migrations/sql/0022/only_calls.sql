CREATE FUNCTION only_calls(message json) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
-- Content without text: absent, null, blank, or an array in which no part has text that is not blank.
RETURN makes_calls(message)
    AND coalesce(json_text(message, 'content'), '')
        ~ '^\s*$|^\[\s*(\]$|\{)(?!.*"text"\s*:\s*"(\s|\\[nrt])*([^"\s\\]|\\[^nrt]))';

COMMENT ON FUNCTION only_calls(json) IS 'Returns whether a message calls functions and says nothing else.';
