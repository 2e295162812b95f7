CREATE FUNCTION offered_functions()
RETURNS TABLE (worker_id text, service text, function_name text, options json)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT
        worker.worker_id,
        worker.service,
        offer ->> 'name',
        CASE json_typeof(offer -> 'options') WHEN 'object' THEN offer -> 'options' ELSE '{}' END
    FROM live_workers() AS worker
    -- A schema may hold what no text of PostgreSQL does: NUL, and halves of a character.
    CROSS JOIN LATERAL (
        SELECT
            regexp_replace(worker.offers::text, '\\u(0000|[dD][89a-fA-F][0-9a-fA-F]{2})', '\\ufffd', 'g')::json
                AS offers
    ) AS readable
    CROSS JOIN LATERAL json_array_elements(
        CASE json_typeof(readable.offers -> 'functions') WHEN 'array' THEN readable.offers -> 'functions' ELSE '[]' END
    ) AS offer
    WHERE worker.kind = 'functions' AND offer ->> 'name' IS NOT NULL;
END;

COMMENT ON FUNCTION offered_functions() IS
    'The functions that each live worker serves by name, with their terms as the worker says them; see workers.offers.';
