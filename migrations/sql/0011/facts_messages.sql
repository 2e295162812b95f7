CREATE OR REPLACE VIEW facts_messages WITH (security_invoker = true) AS
SELECT
    said.context_id,
    said.valid_from AS version,
    nullif(said.valid_to, 9223372036854775807) AS until_version,
    said.era,
    said.position,
    said.said_at,
    said.role,
    said.text,
    said.message,
    said.run_id,
    frames.type AS frame_type,
    frames.frame_id,
    frames.source,
    frames.trace_id
FROM messages AS said
-- Left out of the plan where a query names none of its columns: each message has one such frame.
LEFT JOIN frames ON frames.context_id = said.context_id AND frames.version = said.valid_from;
