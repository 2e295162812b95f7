-- Other types need another view.
DROP VIEW latency;

CREATE VIEW latency WITH (security_invoker = true) AS
SELECT
    run.context_id,
    run.requested_version AS version,
    extract(epoch FROM run.requested_at - heard.logged_at)::double precision AS asked_s,
    extract(epoch FROM run.opened_at - coalesce(heard.logged_at, run.requested_at))::double precision AS opened_s,
    extract(epoch FROM run.started_at - coalesce(heard.logged_at, run.requested_at))::double precision AS started_s,
    extract(epoch FROM run.first_text_at - coalesce(heard.logged_at, run.requested_at))::double precision AS text_s,
    extract(epoch FROM run.closed_at - coalesce(heard.logged_at, run.requested_at))::double precision AS end_s
FROM runs AS run
LEFT JOIN frames AS heard ON heard.context_id = run.context_id AND heard.version = run.heard_version
ORDER BY run.context_id, run.requested_version;

COMMENT ON VIEW latency IS
    'How long the user waited for each run: seconds since the user stopped speaking, or since the run was asked for.';
COMMENT ON COLUMN latency.context_id IS 'The conversation.';
COMMENT ON COLUMN latency.version IS 'The version of the frame that asked for it first; see runs.requested_version.';
COMMENT ON COLUMN latency.asked_s IS
    'Until the run was asked for, which the last words may delay; null if it answers no turn of the user.';
COMMENT ON COLUMN latency.opened_s IS 'Until nothing stood in its way any more, such as another run.';
COMMENT ON COLUMN latency.started_s IS 'Until its latest attempt began to answer.';
COMMENT ON COLUMN latency.text_s IS 'Until the first text of that attempt.';
COMMENT ON COLUMN latency.end_s IS 'Until it was closed.';

GRANT SELECT ON latency TO frameledger_projector, frameledger_worker, frameledger_operator, frameledger_reader;
