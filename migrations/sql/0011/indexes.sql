-- As the frames that wrote them, messages are added about in the order of their times. But some are changed, and newer
-- ones get their place: with several intervals for each range of blocks these are still told from what is around them.
CREATE INDEX messages_by_time ON messages
USING brin (said_at timestamptz_minmax_multi_ops) WITH (autosummarize = on);

-- In its place: see messages_by_version.sql.
DROP INDEX messages_by_version;
ALTER INDEX messages_of_runs RENAME TO messages_by_version;

-- Versions find the runs of a conversation's day as well: see runs_by_version.
DROP INDEX runs_of_context;
