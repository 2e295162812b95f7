CREATE VIEW facts_conversations WITH (security_invoker = true) AS
SELECT
    head.context_id,
    head.started_at,
    head.last_at,
    extract(epoch FROM head.last_at - head.started_at)::double precision AS lasted_s,
    CASE
        WHEN head.parked_version IS NOT NULL THEN 'parked'
        WHEN head.ended THEN 'ended'
        WHEN head.recording THEN 'recording'
        WHEN head.open_run_id IS NOT NULL THEN 'answering'
        WHEN head.open_call_count > 0 THEN 'calling'
        ELSE 'quiet'
    END AS status,
    head.version,
    head.era,
    head.message_count,
    head.run_count,
    head.call_count,
    head.open_call_count,
    head.interruption_count,
    head.unknown_count,
    head.duplicate_count,
    head.recording,
    head.ended,
    head.experiment,
    head.origin ->> 'context_id' AS forked_from,
    head.open_run_id,
    head.parked_at,
    head.parked_error,
    (SELECT sum(runs.input_tokens)::bigint FROM runs WHERE runs.context_id = head.context_id) AS input_tokens,
    (SELECT sum(runs.output_tokens)::bigint FROM runs WHERE runs.context_id = head.context_id) AS output_tokens,
    (
        SELECT CASE WHEN min(run.currency) = max(run.currency) THEN sum(run.cost) END
        FROM facts_runs AS run
        WHERE run.context_id = head.context_id
    ) AS cost,
    (
        SELECT CASE WHEN min(run.currency) = max(run.currency) THEN min(run.currency) END
        FROM facts_runs AS run
        WHERE run.context_id = head.context_id
    ) AS currency,
    (
        SELECT messages.text
        FROM messages
        WHERE messages.context_id = head.context_id
            AND messages.era = head.era
            AND messages.valid_to = 9223372036854775807
            AND messages.role IN ('user', 'assistant')
            AND messages.text IS NOT NULL
        ORDER BY messages.position DESC
        LIMIT 1
    ) AS last_words
FROM contexts AS head;

COMMENT ON VIEW facts_conversations IS
    'Every conversation, experiments too, for programs. Fast by context_id and by started_at.';
COMMENT ON COLUMN facts_conversations.context_id IS 'The conversation.';
COMMENT ON COLUMN facts_conversations.started_at IS 'When its first frame was logged: filter by this.';
COMMENT ON COLUMN facts_conversations.last_at IS 'When its newest frame was logged.';
COMMENT ON COLUMN facts_conversations.lasted_s IS 'Seconds from started_at to last_at.';
COMMENT ON COLUMN facts_conversations.status IS 'parked, ended, recording, answering, calling, or quiet.';
COMMENT ON COLUMN facts_conversations.version IS 'The number of its frames.';
COMMENT ON COLUMN facts_conversations.era IS 'The era of its current history.';
COMMENT ON COLUMN facts_conversations.message_count IS 'Number of current messages.';
COMMENT ON COLUMN facts_conversations.run_count IS 'Number of runs.';
COMMENT ON COLUMN facts_conversations.call_count IS 'Number of calls that were announced or started.';
COMMENT ON COLUMN facts_conversations.open_call_count IS 'Number of calls that are not settled.';
COMMENT ON COLUMN facts_conversations.interruption_count IS 'Number of interruptions.';
COMMENT ON COLUMN facts_conversations.unknown_count IS 'Number of frames of unknown type.';
COMMENT ON COLUMN facts_conversations.duplicate_count IS
    'Number of records that repeated a stored frame and were left out.';
COMMENT ON COLUMN facts_conversations.recording IS 'It mirrors a conversation that happens elsewhere.';
COMMENT ON COLUMN facts_conversations.ended IS 'It was ended and not reopened since.';
COMMENT ON COLUMN facts_conversations.experiment IS 'It is an experiment, such as a rerun.';
COMMENT ON COLUMN facts_conversations.forked_from IS 'The conversation that it continues; null if it is no fork.';
COMMENT ON COLUMN facts_conversations.open_run_id IS 'The run that is open.';
COMMENT ON COLUMN facts_conversations.parked_at IS 'When it was parked.';
COMMENT ON COLUMN facts_conversations.parked_error IS 'What went wrong then.';
COMMENT ON COLUMN facts_conversations.input_tokens IS 'Tokens that its runs read; null if none says how many.';
COMMENT ON COLUMN facts_conversations.output_tokens IS 'Tokens that they wrote.';
COMMENT ON COLUMN facts_conversations.cost IS
    'What its runs cost by the table prices; runs without a price count for nothing. Null if none has one, or if they '
    'are in several currencies.';
COMMENT ON COLUMN facts_conversations.currency IS 'The currency of that.';
COMMENT ON COLUMN facts_conversations.last_words IS 'The last words of the user or the assistant.';
