CREATE FUNCTION excerpt(content text, width integer) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (
    SELECT
        CASE
            WHEN char_length(line) > width OR char_length(content) > 4 * width THEN left(line, width - 1) || '…'
            ELSE line
        END
    -- Four times the width is enough text for a line, whatever follows.
    FROM (SELECT btrim(regexp_replace(left(content, 4 * width), '[[:space:][:cntrl:]]+', ' ', 'g'))) AS one (line)
);

COMMENT ON FUNCTION excerpt(text, integer) IS 'The beginning of a text as one line of at most so many characters.';
