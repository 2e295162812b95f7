CREATE FUNCTION makes_calls(message json) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
-- By json_text(): `message -> 'tool_calls'` fails on every message that has a NUL anywhere.
RETURN coalesce(json_text(message, 'tool_calls'), '[]') !~ '^\[\s*\]$';

COMMENT ON FUNCTION makes_calls(json) IS
    'Returns whether a message calls functions. An absent, null or empty tool_calls is no call.';
