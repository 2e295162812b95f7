CREATE FUNCTION settle_outcome(context_id text, version bigint, outcome text, reason text, why text) RETURNS boolean
LANGUAGE sql VOLATILE SECURITY DEFINER
BEGIN ATOMIC
    -- keep_frames() refuses an update without it. For this transaction only.
    SELECT set_config('frameledger.why', coalesce(settle_outcome.why, ''), true);

    WITH settled AS (
        UPDATE frames
        SET outcome = settle_outcome.outcome, reason = settle_outcome.reason
        WHERE frames.context_id = settle_outcome.context_id
            AND frames.version = settle_outcome.version
            AND (frames.outcome, frames.reason) IS DISTINCT FROM (settle_outcome.outcome, settle_outcome.reason)
        RETURNING frames.version
    )
    SELECT count(*) > 0 FROM settled;
END;

COMMENT ON FUNCTION settle_outcome(text, bigint, text, text, text) IS
    'Give a stored frame another outcome and say why; outcome_changes keeps what it was and who did it. '
    'False if there is nothing to change.';
