-- Whoever asks what a version wrote asks for what a run said: the others need not be in it. Made before anything else, and
-- under another name: readers do not wait for it, since the table is not yet held for changes.
CREATE INDEX messages_of_runs ON messages (context_id, valid_from) WHERE role = 'assistant';
