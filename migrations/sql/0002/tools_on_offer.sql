CREATE VIEW tools_on_offer WITH (security_invoker = true) AS
SELECT
    excerpt(tool.function_name, 24) AS function,
    excerpt(tool.service, 16) AS service,
    count(*) AS workers,
    excerpt(
        concat_ws(
            ', ',
            CASE tool.options ->> 'cancel_on_interruption' WHEN 'false' THEN 'background' END,
            (tool.options ->> 'timeout_secs') || ' s',
            CASE tool.options ->> 'safe_to_retry' WHEN 'true' THEN 'retries' END,
            CASE tool.options ->> 'cancellable_by_llm' WHEN 'true' THEN 'cancellable' END
        ),
        42
    ) AS options
FROM offered_functions() AS tool
GROUP BY 1, 2, 4
ORDER BY 1, 2, 4;

COMMENT ON VIEW tools_on_offer IS 'The functions that live workers serve by name, and on what terms.';
COMMENT ON COLUMN tools_on_offer.function IS 'The function.';
COMMENT ON COLUMN tools_on_offer.service IS 'Who serves it.';
COMMENT ON COLUMN tools_on_offer.workers IS 'How many live workers of that service do.';
COMMENT ON COLUMN tools_on_offer.options IS
    'The terms: whether it runs in the background, its deadline, whether another worker may run it again, and whether '
    'the model may cancel it.';
