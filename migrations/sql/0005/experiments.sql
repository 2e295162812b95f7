CREATE VIEW experiments WITH (security_invoker = true) AS
SELECT
    experiment.origin ->> 'context_id' AS forked_from,
    (experiment.origin ->> 'version')::bigint AS version,
    experiment.context_id,
    experiment.version AS frames
FROM contexts AS experiment
WHERE experiment.experiment
ORDER BY experiment.started_at DESC;

COMMENT ON VIEW experiments IS 'Conversations that are experiments, such as reruns, the newest first.';
COMMENT ON COLUMN experiments.forked_from IS 'The conversation that was forked for it; null if none was.';
COMMENT ON COLUMN experiments.version IS 'The version of that one which the experiment began with.';
COMMENT ON COLUMN experiments.context_id IS 'The experiment, a conversation of its own.';
COMMENT ON COLUMN experiments.frames IS 'How many frames of it are stored; its version.';
