CREATE OR REPLACE VIEW tools_on_offer WITH (security_invoker = true) AS
SELECT
    tool.function_name AS function,
    tool.service,
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
