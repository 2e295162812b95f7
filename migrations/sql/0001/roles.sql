-- Who works with the database, by what they may do there. Roles belong to the cluster, so another database of it may
-- have made them already, or be making them now. Users who log in are granted them; no role here can log in.
DO $$
DECLARE
    wanted text;
BEGIN
    FOREACH wanted IN ARRAY ARRAY[
        'frameledger_projector', 'frameledger_worker', 'frameledger_operator', 'frameledger_reader'
    ] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = wanted) THEN
            BEGIN
                EXECUTE format('CREATE ROLE %I NOLOGIN', wanted);
            EXCEPTION
                WHEN duplicate_object OR unique_violation THEN
                    NULL;
                WHEN insufficient_privilege THEN
                    RAISE EXCEPTION 'The role % is not there, and % may not create it.', wanted, current_user
                        USING ERRCODE = 'insufficient_privilege',
                            HINT = 'Once, somebody who may create roles has to run: CREATE ROLE frameledger_projector; '
                                'CREATE ROLE frameledger_worker; CREATE ROLE frameledger_operator; '
                                'CREATE ROLE frameledger_reader;';
            END;
        END IF;
    END LOOP;
END
$$;
