-- The body of a PL/pgSQL function looks up tables when it runs, on the path of the session that calls it: where our tables
-- are in a schema that is not on it there are none, or those of somebody else.
DO $$
DECLARE
    of_ours text;
BEGIN
    FOREACH of_ours IN ARRAY ARRAY[
        'FUNCTION version_at(text, timestamptz)',
        'FUNCTION explain_message(text, integer, bigint)'
    ] LOOP
        EXECUTE format('ALTER %s SET search_path = %I, pg_temp', of_ours, current_schema());
    END LOOP;
END
$$;
