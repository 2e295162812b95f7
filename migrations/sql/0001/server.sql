-- The server and the database must be able to hold every frame: any text, and functions whose bodies are checked.
DO $$
BEGIN
    IF current_setting('server_version_num')::integer < 150000 THEN
        RAISE EXCEPTION 'This is PostgreSQL %; Frameledger needs 15 or newer.', current_setting('server_version')
            USING HINT = 'Point FRAMELEDGER_DATABASE_URL at a newer server.', ERRCODE = 'feature_not_supported';
    END IF;
    IF current_setting('server_encoding') <> 'UTF8' THEN
        RAISE EXCEPTION 'The encoding of this database is %; Frameledger needs UTF8.', current_setting('server_encoding')
            USING HINT = 'Make another one: CREATE DATABASE name ENCODING ''UTF8'' TEMPLATE template0.',
                ERRCODE = 'feature_not_supported';
    END IF;
END
$$;
