-- Before anything else: readers do not wait for it, since no table is held for changes yet. Both are small: most frames
-- are pieces of answers and of speech.
-- The frames by which clients request answers.
CREATE INDEX frames_asking ON frames (context_id, version)
WHERE outcome = 'applied' AND type IN (
    'LLMMessagesAppendFrame', 'LLMMessagesUpdateFrame', 'LLMRunFrame', 'LLMContextFrame'
);

-- Those that the gateway published for a client of a compatible API; the names may stand elsewhere in a payload, too.
CREATE INDEX frames_of_requests ON frames (context_id, version)
WHERE outcome = 'applied' AND type IN (
    'LLMMessagesAppendFrame', 'LLMMessagesUpdateFrame', 'LLMRunFrame', 'LLMContextFrame', 'FunctionCallResultFrame'
) AND (
    strpos(payload::text, '"chat_completion"') > 0
    OR type = 'FunctionCallResultFrame' AND strpos(payload::text, '"ag_ui"') > 0
);
