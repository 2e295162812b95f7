COMMENT ON FUNCTION causes(text, bigint) IS
    'Returns the chain of causes of the frame at a version: the frame itself at depth 0, its cause at 1, the cause '
    'of that at 2, and so on to a frame that has no cause, or whose cause is not stored. Each frame is returned '
    'once, also if causes form a circle.';
COMMENT ON FUNCTION context_at(text, bigint) IS
    'Returns the context at a version; 0 is the context before the first frame, and no version the current one. A '
    'JSON object with messages, tools, tool_choice and settings. Null if the context does not have the version, or '
    'if it was erased.';
COMMENT ON FUNCTION context_at_time(text, timestamptz) IS
    'Returns the context at a time of the broker''s clock; see context_at() and version_at().';
COMMENT ON FUNCTION delete_conversation(text, bigint) IS
    'Deletes all rows of a conversation up to a version. Only erase() and erase_at(), which write the receipt, may '
    'call it.';
COMMENT ON FUNCTION era_at(text, bigint) IS 'Returns the era of a context at a version.';
COMMENT ON FUNCTION erase(text, text) IS
    'Deletes a conversation from the tables and returns the receipt; no row if there is no such conversation. It '
    'publishes no record, so a rebuild from the log restores the conversation. `frameledger erase` publishes one, '
    'and is permanent.';
COMMENT ON FUNCTION erase_at(text, bigint, text, text) IS
    'Executes the LLMContextEraseFrame that is stored at a version: deletes the conversation up to it, this frame '
    'included, and keeps the receipt. For projectors and unpark, which pass why and requested_by from the frame.';
COMMENT ON FUNCTION excerpt(text, integer) IS
    'Returns the beginning of a text as one line of at most that many characters.';
COMMENT ON FUNCTION explain_call(text, bigint, integer) IS
    'Returns a function call as one JSON object: its row of tool_calls, and its frames with the attempt and the '
    'worker that each names, ignored ones included, up to 1,000 versions after it was settled. Null if there is no '
    'such call.';
COMMENT ON FUNCTION explain_message(text, integer, bigint) IS
    'Returns why a message exists, as one JSON object: each content that it had, with the frames that wrote and '
    'replaced it; its origin, which is a run (explain_run), a call (explain_call) with the run that made it, or a '
    'client with the transcriptions that the message consists of; the range of versions in which its text was '
    'streamed; and the causes of the frame that first wrote it. The position is that within the era at the version, '
    'or at the newest one; there says whether the context has the message at that version. Null if that era has no '
    'such position.';
COMMENT ON FUNCTION explain_run(text, text) IS
    'Returns an inference as one JSON object: its row of runs; the frames that requested and closed it; each '
    'attempt, superseded ones included, with the range and number of its frames and its text; and its ignored '
    'frames, up to 1,000 versions after it was closed. Null if there is no such run.';
COMMENT ON FUNCTION frame_as_json(frames) IS
    'Returns a row of frames as a JSON object, without the payload and the position on the log.';
COMMENT ON FUNCTION heard_for(text, integer, integer) IS
    'Returns the transcriptions that a user''s message consists of, by its era and position; none if it was not '
    'spoken.';
COMMENT ON FUNCTION json_text(json, text) IS
    'Returns a field of a JSON object as text, such as a field of a frame''s payload; null if it is absent. It never '
    'fails on a payload: a character that PostgreSQL cannot store becomes the replacement character.';
COMMENT ON FUNCTION keep_frames() IS
    'Rejects every change of the archive except a new outcome, which it records in outcome_changes, and an erasure, '
    'which has a receipt.';
COMMENT ON FUNCTION live_workers() IS
    'Returns the workers that are alive: not deregistered, and with a heartbeat within their lease.';
COMMENT ON FUNCTION messages_at(text, bigint) IS
    'Returns the rows of messages that are the context at a version, in order.';
COMMENT ON FUNCTION offered_functions() IS
    'Returns the functions that each live worker serves by name, with the options that the worker gives; see '
    'workers.offers.';
COMMENT ON FUNCTION places_on_log(text, bigint) IS
    'Returns where the frames of a conversation up to a version are on the log: a list of {partition, generation, '
    'first_offset, last_offset, records}.';
COMMENT ON FUNCTION seconds(timestamptz, timestamptz) IS
    'Returns the seconds between two times as text for people; null if either is null.';
COMMENT ON FUNCTION setting_at(text, text, bigint) IS
    'Returns one of a context''s settings at a version, by its name in context_settings; null before it was first '
    'set.';
COMMENT ON FUNCTION settle_outcome(text, bigint, text, text, text) IS
    'Changes the outcome of a stored frame and records the previous one, the user and the reason in outcome_changes. '
    'Returns false if there is nothing to change.';
COMMENT ON FUNCTION short_id(text) IS
    'Returns the id of a run or a call in at most nine characters: the first eight of a UUID, the last eight of any '
    'other id that is longer.';
COMMENT ON FUNCTION timeline_of(text, bigint, bigint) IS
    'Returns the frames of a conversation in order, from one version to another; all of them if neither is given. '
    'did: what the frame changed, in words. said: the text of the frame, or of the last message that it contains, up '
    'to 1,000 characters. It reads the messages, runs and calls of the whole conversation, and only the requested '
    'frames.';
COMMENT ON FUNCTION verify_chain(text, bigint, bytea) IS
    'Returns whether the stored frames of a context are those that were folded, none changed, removed or added: it '
    'computes the hash chain again, and compares it with a value that was kept elsewhere, if one is given. chain(0) '
    'is the sha256 of the context id; chain(n) is that of chain(n-1), int8send(n), int4send(bytes of source, -1 for '
    'null), source and payload, one after the other.';
COMMENT ON FUNCTION version_at(text, timestamptz) IS
    'Returns the version that a context had at a time: that of the newest frame that the broker had received by '
    'then. Before the first stored frame 0, or the version at which an earlier conversation of this id was erased; '
    'null if there is no such context.';
COMMENT ON PROCEDURE fill_said_at() IS
    'Sets messages.said_at in rows of an older release, in many short transactions, while the services run. It can '
    'be interrupted and called again. It skips rows that another transaction is changing.';
