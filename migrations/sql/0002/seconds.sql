CREATE FUNCTION seconds(since timestamptz, until timestamptz) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN to_char(extract(epoch FROM until - since), 'FM999999990.0');

COMMENT ON FUNCTION seconds(timestamptz, timestamptz) IS
    'How many seconds lie between two times, for a person; null if either is.';
