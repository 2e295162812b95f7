-- Frames are added about in the order of their times, so a small index by blocks finds those of a day.
CREATE INDEX frames_by_time ON frames USING brin (logged_at) WITH (autosummarize = on);

-- What a frame wrote.
CREATE INDEX messages_by_version ON messages (context_id, valid_from);

-- The run that a frame asked for.
CREATE INDEX runs_by_version ON runs (context_id, requested_version);

-- A row keeps its time for good, so that it can be written again without a word in these.
CREATE INDEX runs_requested_at ON runs (requested_at);
CREATE INDEX tool_calls_requested_at ON tool_calls (requested_at);
