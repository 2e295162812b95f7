-- The calls of a conversation that a process runs, or that wait for somebody: an interruption and a cancel tool look for
-- them, however many calls the conversation had before. Readers do not wait for it.
CREATE INDEX tool_calls_in_progress ON tool_calls (context_id) WHERE status IN ('running', 'waiting');
