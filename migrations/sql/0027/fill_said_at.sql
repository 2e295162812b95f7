-- A procedure that commits cannot have a search path of its own: it names the schema of its tables, that in which it is.
DO $migration$
BEGIN
    EXECUTE format(
        $procedure$
        CREATE OR REPLACE PROCEDURE fill_said_at()
        LANGUAGE plpgsql
        AS $$
        DECLARE
            -- Blocks of one transaction: few enough that nobody waits for it.
            step CONSTANT bigint := 256;
            first bigint := 0;
            behind CONSTANT bigint := pg_relation_size(%2$L) / current_setting('block_size')::bigint;
        BEGIN
            WHILE first < behind LOOP
                -- In the order in which they lie, so that the index by time stays small. It waits for no row, and so
                -- for nobody.
                UPDATE %1$I.messages AS message
                SET said_at = frame.logged_at
                FROM %1$I.frames AS frame
                WHERE frame.context_id = message.context_id
                    AND frame.version = message.valid_from
                    AND message.ctid = ANY (
                        ARRAY(
                            SELECT without.ctid
                            FROM %1$I.messages AS without
                            WHERE without.ctid >= format('(%%s,0)', first)::tid
                                AND without.ctid < format('(%%s,0)', first + step)::tid
                                AND without.said_at IS NULL
                            FOR NO KEY UPDATE SKIP LOCKED
                        )
                    );
                COMMIT;
                first := first + step;
            END LOOP;
        END
        $$
        $procedure$,
        current_schema(),
        format('%I.messages', current_schema())
    );
END
$migration$;
