CREATE FUNCTION short_id(id text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE
    WHEN char_length(id) <= 9 THEN id
    WHEN id ~ '^[0-9a-fA-F]{8}-' THEN left(id, 8)
    -- Providers begin all their ids alike.
    ELSE '…' || right(id, 8)
END;

COMMENT ON FUNCTION short_id(text) IS
    'The id of a run or a call in at most nine characters: the first eight of a uuid, the last eight of another that is '
    'longer.';
