-- Before anything else: readers do not wait for it, since no table is held for changes yet. Both are small: most frames
-- are pieces of answers and of speech.
-- The latest frame of each type by which an answer is requested.
CREATE INDEX frames_asking ON frames (context_id, type, version)
WHERE outcome = 'applied' AND type IN (
    'LLMMessagesAppendFrame', 'LLMMessagesUpdateFrame', 'LLMRunFrame', 'LLMContextFrame',
    'TranscriptionFrame', 'UserStoppedSpeakingFrame'
);

-- Those that the gateway published for a client of a compatible API; the names may stand elsewhere in a payload, too.
CREATE INDEX frames_of_requests ON frames (context_id, type, version)
WHERE outcome = 'applied' AND type IN (
    'LLMMessagesAppendFrame', 'LLMMessagesUpdateFrame', 'LLMRunFrame', 'LLMContextFrame', 'FunctionCallResultFrame'
) AND (strpos(payload::text, '"chat_completion"') > 0 OR strpos(payload::text, '"ag_ui"') > 0);
