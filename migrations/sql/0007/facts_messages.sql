CREATE VIEW facts_messages WITH (security_invoker = true) AS
SELECT
    frames.context_id,
    frames.version,
    nullif(said.valid_to, 9223372036854775807) AS until_version,
    said.era,
    said.position,
    frames.logged_at AS said_at,
    said.role,
    said.text,
    said.message,
    said.run_id,
    frames.type AS frame_type,
    frames.frame_id,
    frames.source,
    frames.trace_id
FROM frames
CROSS JOIN LATERAL (
    SELECT *
    FROM messages
    WHERE messages.context_id = frames.context_id AND messages.valid_from = frames.version
    -- Always this way round: the frames of a day are known by an index, its messages are not.
    OFFSET 0
) AS said
-- Most frames are pieces of what is being said, and write no message.
WHERE frames.type NOT IN (
    'LLMTextFrame', 'LLMThoughtTextFrame', 'InterimTranscriptionFrame'
);

COMMENT ON VIEW facts_messages IS
    'Every message, one row for each time that it read differently, with the frame that wrote it, for programs. Fast by '
    'context_id and by said_at.';
COMMENT ON COLUMN facts_messages.context_id IS 'The conversation.';
COMMENT ON COLUMN facts_messages.version IS 'The first version of the context at which it read so.';
COMMENT ON COLUMN facts_messages.until_version IS
    'The first version at which it no longer did; null while it does, in its era.';
COMMENT ON COLUMN facts_messages.era IS 'The history that it belongs to; contexts.era is the current one.';
COMMENT ON COLUMN facts_messages.position IS 'Its position in that history. There are gaps.';
COMMENT ON COLUMN facts_messages.said_at IS 'When the frame that wrote it was logged: filter by this.';
COMMENT ON COLUMN facts_messages.role IS 'The role: system, user, assistant, tool, developer ...';
COMMENT ON COLUMN facts_messages.text IS 'What a person reads of it: its text, or the calls that it makes.';
COMMENT ON COLUMN facts_messages.message IS 'The message as a model gets it.';
COMMENT ON COLUMN facts_messages.run_id IS 'The run that said it, if one did.';
COMMENT ON COLUMN facts_messages.frame_type IS 'The name of the frame that wrote it.';
COMMENT ON COLUMN facts_messages.frame_id IS 'The id of that frame.';
COMMENT ON COLUMN facts_messages.source IS 'The publisher of that frame, as it names itself.';
COMMENT ON COLUMN facts_messages.trace_id IS 'The trace that it belongs to.';
