-- settle_outcome(), erase() and erase_at() run it with the rights of the tables' owner and in the session of somebody who
-- has fewer. So it looks up no name where that user may make things: neither on their path nor among temporary tables.
CREATE OR REPLACE FUNCTION keep_frames() RETURNS trigger
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    before record;
    why text := nullif(current_setting('frameledger.why', true), '');
    receipt boolean;
BEGIN
    IF TG_OP = 'TRUNCATE' THEN
        RAISE EXCEPTION 'Frames are an archive and are not truncated.'
            USING ERRCODE = 'insufficient_privilege', HINT = 'erase() removes one conversation and leaves a receipt.';
    END IF;

    IF TG_OP = 'DELETE' THEN
        EXECUTE format(
            'SELECT EXISTS (SELECT FROM %I.erasures WHERE context_id = $1 AND erased_at = transaction_timestamp())',
            TG_TABLE_SCHEMA
        ) INTO receipt USING OLD.context_id;
        IF NOT receipt THEN
            RAISE EXCEPTION 'Frames are an archive and are not deleted.'
                USING ERRCODE = 'insufficient_privilege',
                    HINT = 'erase() removes one conversation and leaves a receipt.';
        END IF;
        RETURN OLD;
    END IF;

    before := OLD;
    before.outcome := NEW.outcome;
    before.reason := NEW.reason;
    -- Compared by their bytes: json has no other equality.
    IF before *<> NEW OR why IS NULL THEN
        RAISE EXCEPTION 'Frames are an archive: nothing but their outcome changes, and that with a reason given.'
            USING ERRCODE = 'insufficient_privilege', HINT = 'settle_outcome() changes an outcome.';
    END IF;
    EXECUTE format(
        'INSERT INTO %I.outcome_changes (context_id, version, old_outcome, old_reason, new_outcome, new_reason, why) '
        'VALUES ($1, $2, $3, $4, $5, $6, $7)',
        TG_TABLE_SCHEMA
    ) USING NEW.context_id, NEW.version, OLD.outcome, OLD.reason, NEW.outcome, NEW.reason, why;
    RETURN NEW;
END
$$;
