COMMENT ON COLUMN interruptions.kept IS 'The beginning of the text that was kept; null if none was.';
COMMENT ON VIEW transcript IS
    'The messages of each conversation as they are now. messages_at() returns whole texts, also of an earlier version.';
COMMENT ON COLUMN turns.wait_s IS
    'Seconds from the end of the turn to the first text of the run that it requested. A late transcription ends a turn '
    'after the user has stopped speaking; facts_turns.first_text_s counts from there.';
