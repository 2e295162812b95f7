-- PostgreSQL keeps samples of the values of a column for its planner, and pg_stats shows them to whoever may read it. They
-- outlast the rows: what was erased would be there until some later ANALYZE. No plan depends on these columns' values.
ALTER TABLE messages ALTER COLUMN text SET STATISTICS 0;
ALTER TABLE runs ALTER COLUMN error SET STATISTICS 0, ALTER COLUMN said SET STATISTICS 0;
ALTER TABLE contexts ALTER COLUMN parked_error SET STATISTICS 0;
ALTER TABLE rejected_frames ALTER COLUMN error SET STATISTICS 0, ALTER COLUMN value SET STATISTICS 0;
ALTER TABLE outbox ALTER COLUMN value SET STATISTICS 0;

-- Those that were taken before. Below PostgreSQL 18 only a superuser can delete them.
DO $$
DECLARE
    of_words record;
BEGIN
    FOR of_words IN
        SELECT attrelid, attnum, relname, attname
        FROM pg_attribute
        INNER JOIN pg_class ON pg_class.oid = attrelid
        WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r' AND attnum > 0 AND attstattarget = 0
    LOOP
        IF to_regprocedure('pg_clear_attribute_stats(text, text, text, boolean)') IS NOT NULL THEN
            EXECUTE 'SELECT pg_clear_attribute_stats($1, $2, $3, false)'
            USING current_schema()::text, of_words.relname::text, of_words.attname::text;
        ELSIF current_setting('is_superuser')::boolean THEN
            DELETE FROM pg_statistic WHERE starelid = of_words.attrelid AND staattnum = of_words.attnum;
        END IF;
    END LOOP;
END
$$;
