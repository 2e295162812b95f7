COMMENT ON COLUMN conversations.frames IS
    'Its version: the number of its frames, including those of earlier lives that were erased.';
COMMENT ON COLUMN experiments.frames IS
    'Its version: the number of its frames, including those of earlier lives that were erased.';
COMMENT ON VIEW facts_calls IS
    'Every function call, for programs: times, numbers and whole values. Also those of reruns and replayed copies, in '
    'which no function ran: conversations with recording and origin in contexts. Fast by context_id and by requested_at.';
COMMENT ON COLUMN facts_calls.result IS
    'The final result; null if there is none. What a person resolved is in the frame of resolved_version.';
COMMENT ON COLUMN facts_conversations.interruption_count IS 'Number of interruptions, as in the view interruptions.';
COMMENT ON VIEW facts_messages IS
    'Every message, with one row for each content that it had and the frame that wrote it, for programs. Also those that '
    'forks, reruns and replayed copies have of another conversation (facts_turns.is_copy). Fast by context_id and by '
    'said_at.';
COMMENT ON COLUMN facts_runs.cost IS
    'The cost of its tokens by the table prices, at the price in effect at started_at; null if there is no such '
    'price, or if the number of input or output tokens is unknown. Attempts before the latest one are not included.';
COMMENT ON COLUMN facts_runs.generated IS
    'All text that the latest attempt generated, whether it was heard or not; of an open run what is in the messages so '
    'far. Null for none, and where another program keeps the history and adds the text later (LLMMirrorFrame). Calls '
    'are in facts_calls.';
COMMENT ON VIEW facts_turns IS
    'What users said and what was answered, for programs: one row for each message of a user, also if it was removed '
    'later. Messages that a new history contains with their answers are left out. Fast by context_id and by said_at.';
COMMENT ON COLUMN facts_turns.is_copy IS
    'True if `frameledger fork`, `rerun` or `replay` copied the message from another conversation, where it counts.';
COMMENT ON VIEW forks IS
    'Conversations that were forked from another one, by that one, and replayed copies of it. Reruns are in '
    'experiments.';
COMMENT ON COLUMN forks.frames IS
    'The version of the fork: the number of its frames, including those of earlier lives that were erased.';
COMMENT ON VIEW interruptions IS
    'Every interruption (InterruptionFrame), and the part of the answer that was kept. An input that stops an answer '
    '(second_input: interrupt) is none: runs with the status interrupted have both.';
COMMENT ON COLUMN interruptions.kept IS
    'The beginning of the text that the interruption wrote. Null if nothing was kept, or if the answer had ended before '
    'and stays as it is.';
