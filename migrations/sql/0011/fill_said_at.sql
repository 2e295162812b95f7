CREATE PROCEDURE fill_said_at()
LANGUAGE plpgsql
AS $$
DECLARE
    -- Blocks of one transaction: few enough that nobody waits for it.
    step CONSTANT bigint := 256;
    first bigint := 0;
    behind CONSTANT bigint := pg_relation_size('messages') / current_setting('block_size')::bigint;
BEGIN
    WHILE first < behind LOOP
        -- In the order in which they lie, so that the index by time stays small. It waits for no row, and so for nobody.
        UPDATE messages
        SET said_at = frames.logged_at
        FROM frames
        WHERE frames.context_id = messages.context_id
            AND frames.version = messages.valid_from
            AND messages.ctid = ANY (
                ARRAY(
                    SELECT without.ctid
                    FROM messages AS without
                    WHERE without.ctid >= format('(%s,0)', first)::tid
                        AND without.ctid < format('(%s,0)', first + step)::tid
                        AND without.said_at IS NULL
                    FOR NO KEY UPDATE SKIP LOCKED
                )
            );
        COMMIT;
        first := first + step;
    END LOOP;
END
$$;

COMMENT ON PROCEDURE fill_said_at() IS
    'Gives messages that an older release wrote their time. In many short transactions, while everything goes on; '
    'interrupted or called again, it does what is left. A message that somebody is changing just then is left, too.';

REVOKE EXECUTE ON PROCEDURE fill_said_at() FROM PUBLIC;
GRANT EXECUTE ON PROCEDURE fill_said_at() TO frameledger_projector;
