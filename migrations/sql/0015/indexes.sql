-- Before anything else: readers do not wait for it, since no table is held for changes yet.
-- The calls whose messages a context shows. Those of earlier eras are not read.
CREATE INDEX tool_calls_by_start ON tool_calls (context_id, started_version) WHERE started_version IS NOT NULL;

-- delete_conversation() deletes a conversation's dead letters inside the projector's transaction.
CREATE INDEX rejected_frames_of_context ON rejected_frames (context_id) WHERE context_id IS NOT NULL;

-- Those that `dlq retry` has not published again, in the order in which it does.
CREATE INDEX rejected_frames_left ON rejected_frames (recorded_at) WHERE retried_at IS NULL;
