CREATE VIEW forks WITH (security_invoker = true) AS
SELECT
    fork.origin ->> 'context_id' AS forked_from,
    (fork.origin ->> 'version')::bigint AS version,
    fork.context_id,
    fork.version AS frames
FROM contexts AS fork
WHERE fork.origin IS NOT NULL AND NOT fork.experiment
ORDER BY fork.origin ->> 'context_id', (fork.origin ->> 'version')::bigint, fork.started_at;

COMMENT ON VIEW forks IS 'Conversations that continue a moment of another one, by that one. (Reruns: experiments.)';
COMMENT ON COLUMN forks.forked_from IS 'The conversation that was forked; nothing in it changed.';
COMMENT ON COLUMN forks.version IS 'Its version whose context the fork began with.';
COMMENT ON COLUMN forks.context_id IS 'The fork, a conversation of its own.';
COMMENT ON COLUMN forks.frames IS 'How many frames of the fork are stored; its version.';
