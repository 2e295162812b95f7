CREATE VIEW transcript WITH (security_invoker = true) AS
SELECT
    said.context_id,
    said.valid_from AS version,
    coalesce(excerpt(said.role, 9), '') AS who,
    CASE WHEN said.valid_from > head.run_version AND NOT head.recording THEN '*' ELSE '' END AS new,
    excerpt(said.text, 31) AS said
FROM contexts AS head
INNER JOIN messages AS said ON said.context_id = head.context_id AND said.era = head.era
WHERE said.valid_to = 9223372036854775807
ORDER BY said.context_id, said.position;

COMMENT ON VIEW transcript IS
    'What is in each conversation now, message by message. (An earlier version: context_at; all of a text: messages.)';
COMMENT ON COLUMN transcript.context_id IS 'The conversation.';
COMMENT ON COLUMN transcript.version IS 'The version of the frame since which the message reads so.';
COMMENT ON COLUMN transcript.who IS 'Who speaks.';
COMMENT ON COLUMN transcript.new IS 'A star if no run has seen it yet.';
COMMENT ON COLUMN transcript.said IS 'The beginning of what was said.';
