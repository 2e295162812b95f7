COMMENT ON VIEW ambiguous_calls IS 'Calls that may or may not have happened and that no person has resolved.';
COMMENT ON COLUMN ambiguous_calls.at IS 'When the call was settled.';
COMMENT ON COLUMN ambiguous_calls.call IS 'The beginning of the function''s name and its arguments.';
COMMENT ON COLUMN ambiguous_calls.tool_call_id IS 'The id of the call.';
COMMENT ON COLUMN ambiguous_calls.version IS
    'The version that announced the call: opened_version of the result that resolves it.';
COMMENT ON VIEW conversations IS
    'Every conversation except experiments, the newest first: its status and its last words.';
COMMENT ON COLUMN conversations.frames IS 'Its version: the number of its frames.';
COMMENT ON COLUMN conversations.last_words IS 'The beginning of the latest text of the user or the assistant.';
COMMENT ON COLUMN experiments.context_id IS 'The experiment, a conversation of its own.';
COMMENT ON COLUMN experiments.forked_from IS 'The conversation that it was forked from; null if none.';
COMMENT ON COLUMN experiments.frames IS 'Its version: the number of its frames.';
COMMENT ON COLUMN experiments.version IS 'The version of that conversation at which the experiment starts.';
COMMENT ON VIEW facts_calls IS
    'Every function call, for programs: times, numbers and whole values. Fast by context_id and by requested_at.';
COMMENT ON COLUMN facts_calls.arguments IS 'The arguments; a JSON string if they were sent as text.';
COMMENT ON COLUMN facts_calls.attempt IS 'The number of the latest attempt; 0 before the call starts.';
COMMENT ON COLUMN facts_calls.builtin IS 'True for a built-in function.';
COMMENT ON COLUMN facts_calls.dispatched_at IS 'When the call became ready to start; see tool_calls.dispatched_at.';
COMMENT ON COLUMN facts_calls.function_name IS 'The name of the function.';
COMMENT ON COLUMN facts_calls.group_id IS 'The id shared by calls that were announced together.';
COMMENT ON COLUMN facts_calls.idempotency_key IS 'The key that every attempt gives its handler.';
COMMENT ON COLUMN facts_calls.ordinal IS 'The index of the call among those of the same frame, from 0.';
COMMENT ON COLUMN facts_calls.queued_s IS
    'Seconds from requested_at until the call started, or was settled without a start.';
COMMENT ON COLUMN facts_calls.ran_s IS 'Seconds from the first start until the call was settled.';
COMMENT ON COLUMN facts_calls.requested_at IS 'When the frame that announced the call was logged: filter by this.';
COMMENT ON COLUMN facts_calls.requested_version IS
    'The version of the frame that announced the call, or that started it if none announced it.';
COMMENT ON COLUMN facts_calls.resolved_at IS 'When a person resolved the call, if it was ambiguous.';
COMMENT ON COLUMN facts_calls.resolved_version IS 'The version of the frame by which a person resolved the call.';
COMMENT ON COLUMN facts_calls.result IS 'The final result; null if there is none.';
COMMENT ON COLUMN facts_calls.run_id IS 'The run that made the call; null if none did.';
COMMENT ON COLUMN facts_calls.safe_to_retry IS
    'True if the function may run twice for one call; null before it starts.';
COMMENT ON COLUMN facts_calls.settled_at IS 'When the call was settled.';
COMMENT ON COLUMN facts_calls.settled_version IS 'The version of the frame that settled the call.';
COMMENT ON COLUMN facts_calls.started_at IS 'When the first start was logged.';
COMMENT ON COLUMN facts_calls.started_version IS 'The version of the first start.';
COMMENT ON COLUMN facts_calls.synchronous IS 'True if an interruption cancels the call; null before it starts.';
COMMENT ON COLUMN facts_calls.timeout_secs IS 'Seconds that the call may take after it was dispatched.';
COMMENT ON COLUMN facts_calls.tool_call_id IS
    'The id that the provider gave. It may be used again after this call is settled.';
COMMENT ON COLUMN facts_calls.waiting_deadline IS 'When the wait ends; null if it has no end.';
COMMENT ON COLUMN facts_calls.waiting_for IS
    'What the call waits for: the person or system that its worker names, or `the client`.';
COMMENT ON COLUMN facts_calls.worker IS 'The worker that ran the call, by the name that it gives itself.';
COMMENT ON VIEW facts_conversations IS
    'Every conversation, experiments included, for programs. Fast by context_id and by started_at.';
COMMENT ON COLUMN facts_conversations.cost IS
    'The cost of its runs by the table prices, without runs that have no price. Null if no run has one, or if they '
    'are in several currencies.';
COMMENT ON COLUMN facts_conversations.currency IS 'The currency of cost.';
COMMENT ON COLUMN facts_conversations.duplicate_count IS
    'Number of records that repeated a stored frame and were skipped.';
COMMENT ON COLUMN facts_conversations.ended IS 'True if the conversation was ended and not reopened.';
COMMENT ON COLUMN facts_conversations.experiment IS 'True for an experiment, such as a rerun.';
COMMENT ON COLUMN facts_conversations.forked_from IS
    'The conversation that it was forked from; null if it is not a fork.';
COMMENT ON COLUMN facts_conversations.input_tokens IS 'Input tokens of its runs; null if no run reports any.';
COMMENT ON COLUMN facts_conversations.last_words IS 'The latest text of the user or the assistant.';
COMMENT ON COLUMN facts_conversations.open_run_id IS 'The open run; null if none is open.';
COMMENT ON COLUMN facts_conversations.output_tokens IS 'Output tokens of its runs; null if no run reports any.';
COMMENT ON COLUMN facts_conversations.parked_at IS 'When the conversation was parked; null if it is not parked.';
COMMENT ON COLUMN facts_conversations.parked_error IS 'The error because of which it was parked.';
COMMENT ON COLUMN facts_conversations.recording IS
    'True if the conversation takes place elsewhere and is only recorded.';
COMMENT ON COLUMN facts_conversations.version IS 'The version of the newest stored frame.';
COMMENT ON VIEW facts_messages IS
    'Every message, with one row for each content that it had and the frame that wrote it, for programs. Fast by '
    'context_id and by said_at.';
COMMENT ON COLUMN facts_messages.era IS 'The history that the message belongs to; contexts.era is the current one.';
COMMENT ON COLUMN facts_messages.frame_type IS 'The type of the frame that wrote this row.';
COMMENT ON COLUMN facts_messages.message IS 'The message as a model receives it.';
COMMENT ON COLUMN facts_messages.position IS 'Position in that history. There are gaps.';
COMMENT ON COLUMN facts_messages.run_id IS 'The run that produced the message; null if none did.';
COMMENT ON COLUMN facts_messages.said_at IS 'When the frame that wrote this row was logged: filter by this.';
COMMENT ON COLUMN facts_messages.source IS 'The publisher of that frame, by the name that it gives itself.';
COMMENT ON COLUMN facts_messages.text IS 'The message as text for people: its content, or the calls that it makes.';
COMMENT ON COLUMN facts_messages.trace_id IS 'The trace id of that frame.';
COMMENT ON COLUMN facts_messages.until_version IS
    'The first version at which the message no longer has this content; null while it does, within its era.';
COMMENT ON COLUMN facts_messages.version IS
    'The first version of the context at which the message has this content.';
COMMENT ON VIEW facts_runs IS
    'Every inference, for programs: times, numbers and whole texts. Fast by context_id and by requested_at.';
COMMENT ON COLUMN facts_runs.attempt IS
    'The number of the latest attempt; 0 before the first one, and for an answer that names no run.';
COMMENT ON COLUMN facts_runs.closed_at IS 'When the run was closed.';
COMMENT ON COLUMN facts_runs.closed_version IS 'The version of the frame that closed the run.';
COMMENT ON COLUMN facts_runs.cost IS
    'The cost of its tokens by the table prices, at the price in effect at started_at; null if there is no such '
    'price, or if the number of input or output tokens is unknown.';
COMMENT ON COLUMN facts_runs.currency IS 'The currency of cost.';
COMMENT ON COLUMN facts_runs.error IS 'The message of the latest error.';
COMMENT ON COLUMN facts_runs.error_code IS 'The code of the latest error.';
COMMENT ON COLUMN facts_runs.experiment IS
    'True if the conversation is an experiment, such as a rerun. Its runs cost money, too.';
COMMENT ON COLUMN facts_runs.first_text_s IS
    'Seconds until the first text, from the time at which the user stopped speaking, or else from requested_at.';
COMMENT ON COLUMN facts_runs.generated IS
    'All text that the latest attempt generated, whether it was heard or not; null for none. Calls are in '
    'facts_calls.';
COMMENT ON COLUMN facts_runs.heard IS
    'The part of that text that the conversation keeps: after an interruption what was heard, if that was reported.';
COMMENT ON COLUMN facts_runs.heard_at IS
    'When the user stopped speaking; null if the run does not answer a user''s turn.';
COMMENT ON COLUMN facts_runs.input_tokens IS 'Input tokens, those read from the cache included; null if unknown.';
COMMENT ON COLUMN facts_runs.is_copy IS
    'True if `frameledger replay` republished the answer. Its tokens, cost and times are those of the original, and '
    'count twice unless copies are left out.';
COMMENT ON COLUMN facts_runs.model IS 'The model.';
COMMENT ON COLUMN facts_runs.opened_at IS 'When the run was opened.';
COMMENT ON COLUMN facts_runs.opened_version IS
    'The version of the context that the run reads; null before it opens.';
COMMENT ON COLUMN facts_runs.output_tokens IS 'Output tokens, reasoning tokens included; null if unknown.';
COMMENT ON COLUMN facts_runs.provider IS 'The provider of the model.';
COMMENT ON COLUMN facts_runs.reasoning_tokens IS 'Reasoning tokens.';
COMMENT ON COLUMN facts_runs.requested_at IS 'When the frame that requested the run was logged: filter by this.';
COMMENT ON COLUMN facts_runs.requested_version IS 'The version of the frame that first requested the run.';
COMMENT ON COLUMN facts_runs.started_at IS 'When the start of the latest attempt was logged.';
COMMENT ON COLUMN facts_runs.started_version IS 'The version of the start of the latest attempt.';
COMMENT ON COLUMN facts_runs.trigger IS 'The type of the frame that first requested the run.';
COMMENT ON COLUMN facts_runs.usage_partial IS
    'True if the token counts are incomplete: the run has no end that reports them, or ended with an error.';
COMMENT ON COLUMN facts_runs.worker IS 'The worker that answered, by the name that it gives itself.';
COMMENT ON VIEW facts_turns IS
    'What users said and what was answered, for programs: one row for each message of a user. Fast by context_id and '
    'by said_at.';
COMMENT ON COLUMN facts_turns.answer IS
    'All text of the assistant up to the user''s next message, as the conversation keeps it; null for none.';
COMMENT ON COLUMN facts_turns.answered_at IS 'When that run was closed.';
COMMENT ON COLUMN facts_turns.era IS 'The history that the message belongs to; contexts.era is the current one.';
COMMENT ON COLUMN facts_turns.first_text_at IS 'When the first text of that run was logged.';
COMMENT ON COLUMN facts_turns.first_text_s IS
    'Seconds until that text, from the time at which the user stopped speaking, or else from the request of the run.';
COMMENT ON COLUMN facts_turns.model IS 'The model of that run.';
COMMENT ON COLUMN facts_turns.position IS 'Position of the message in that history. There are gaps.';
COMMENT ON COLUMN facts_turns.run_id IS
    'The run that the message requested; null if it requested none, or if the run had been requested before. A call '
    'leads to more runs.';
COMMENT ON COLUMN facts_turns.said_at IS 'When the frame that first wrote the message was logged: filter by this.';
COMMENT ON COLUMN facts_turns.status IS 'The status of that run; see runs.status.';
COMMENT ON COLUMN facts_turns.user_said IS
    'The whole text of the user, in its latest version if the message was rewritten.';
COMMENT ON COLUMN facts_turns.version IS 'The version of the frame that first wrote the message.';
COMMENT ON VIEW forks IS 'Conversations that were forked from another one, by that one. Reruns are in experiments.';
COMMENT ON COLUMN forks.forked_from IS 'The conversation that was forked. Nothing in it changed.';
COMMENT ON COLUMN forks.frames IS 'The version of the fork: the number of its frames.';
COMMENT ON COLUMN forks.version IS 'The version of that conversation at which the fork starts.';
COMMENT ON VIEW interruptions IS 'Every interruption, and the part of the answer that was kept.';
COMMENT ON COLUMN interruptions.at IS 'When the interruption was logged.';
COMMENT ON COLUMN interruptions.kept IS
    'The beginning of the text that was kept; null if nothing had been generated.';
COMMENT ON COLUMN interruptions.spoke_s IS
    'Seconds from the first text of the run until the interruption closed it; null if it closed none.';
COMMENT ON COLUMN lag.gap IS
    'Number of records behind the end of the partition when the owner last checked; null before it first did.';
COMMENT ON COLUMN lag.lag IS 'The age of the last record that was read, if there are later ones; else 0.';
COMMENT ON COLUMN lag.next_offset IS 'The next offset to read.';
COMMENT ON COLUMN lag.projection IS 'The name of the projection.';
COMMENT ON COLUMN lag.topic IS 'The name of the topic.';
COMMENT ON VIEW latency IS
    'How long the user waited for each run: seconds since the user stopped speaking, or else since the run was '
    'requested.';
COMMENT ON COLUMN latency.asked_s IS
    'Until the run was requested, which a late transcription may delay; null if the run does not answer a user''s '
    'turn.';
COMMENT ON COLUMN latency.end_s IS 'Until the run was closed.';
COMMENT ON COLUMN latency.opened_s IS 'Until the run was opened: no other run or call was in its way.';
COMMENT ON COLUMN latency.started_s IS 'Until the start of the latest attempt.';
COMMENT ON COLUMN latency.version IS
    'The version of the frame that first requested the run; see runs.requested_version.';
COMMENT ON VIEW parked IS
    'Conversations whose new frames are stored but not folded, because one of them could not be folded.';
COMMENT ON COLUMN parked.at IS 'When the conversation was parked.';
COMMENT ON COLUMN parked.error IS 'The beginning of the error; contexts.parked_error has all of it.';
COMMENT ON COLUMN parked.waiting IS 'Number of frames that are not folded, that one included.';
COMMENT ON VIEW run_history IS
    'Every inference of each conversation: how it ended, and what it generated, whether that was heard or not.';
COMMENT ON COLUMN run_history.became IS
    'The status; for a run that ended the finish reason, if that is not stop: tool_calls, length, content_filter, '
    'error.';
COMMENT ON COLUMN run_history.said IS
    'The beginning of what the latest attempt generated, or of its error if it generated nothing.';
COMMENT ON COLUMN run_history.try IS
    'The number of the latest attempt; 0 before the first one, and for an answer that names no run.';
COMMENT ON COLUMN run_history.version IS
    'The version of the frame that first requested the run; see runs.requested_version.';
COMMENT ON VIEW services IS 'The services that have live workers, and their load.';
COMMENT ON COLUMN services.busy IS 'Number of jobs that these run.';
COMMENT ON COLUMN services.heard_s IS 'Seconds since the latest heartbeat of any of them.';
COMMENT ON COLUMN services.serves IS
    'The functions or models that they list; `what nobody lists` if they also serve every other one.';
COMMENT ON COLUMN services.service IS 'The name of the service.';
COMMENT ON COLUMN services.slots IS 'Number of jobs that these can run at once.';
COMMENT ON COLUMN services.workers IS 'Number of live workers.';
COMMENT ON VIEW timeline IS 'Every frame of each conversation, in order, with its outcome if it was not applied.';
COMMENT ON COLUMN timeline.at IS 'When the frame was logged.';
COMMENT ON COLUMN timeline.frame IS
    'The frame type; behind a colon why it was ignored, or that it is unknown or parked.';
COMMENT ON COLUMN timeline.version IS 'The version of the frame.';
COMMENT ON VIEW token_usage IS
    'The tokens of each conversation by model, as the ends of its runs report them; for a run without a regular end '
    'those that are known (runs.usage_partial).';
COMMENT ON COLUMN token_usage.input IS 'Input tokens; null if no run reports any, as in the other columns.';
COMMENT ON COLUMN token_usage.model IS 'The model; null if no run names it.';
COMMENT ON COLUMN token_usage.output IS 'Output tokens.';
COMMENT ON COLUMN token_usage.read IS 'Tokens read from the provider''s cache.';
COMMENT ON COLUMN token_usage.thought IS 'Reasoning tokens.';
COMMENT ON COLUMN token_usage.written IS 'Tokens written to the provider''s cache.';
COMMENT ON VIEW tool_call_history IS 'Every function call: how it ended, how long it took, and which worker ran it.';
COMMENT ON COLUMN tool_call_history.became IS
    'The beginning of the result; the status if the call is not done; resolved, if a person resolved it.';
COMMENT ON COLUMN tool_call_history.call IS 'The beginning of the function''s name and its arguments.';
COMMENT ON COLUMN tool_call_history.queued IS
    'Seconds from the announcement until the start; null before the start. queued + ran is the whole time.';
COMMENT ON COLUMN tool_call_history.ran IS 'Seconds from the start until the call was settled.';
COMMENT ON COLUMN tool_call_history.who IS 'The worker that ran the call, by the name that it gives itself.';
COMMENT ON VIEW tools_on_offer IS 'The functions that live workers serve by name, and their options.';
COMMENT ON COLUMN tools_on_offer.function IS 'The name of the function.';
COMMENT ON COLUMN tools_on_offer.options IS
    'Whether the function runs in the background, its timeout, whether another worker may run a call again, and '
    'whether the model may cancel it.';
COMMENT ON COLUMN tools_on_offer.service IS 'The service that serves it.';
COMMENT ON COLUMN tools_on_offer.workers IS 'Number of live workers of that service that serve it.';
COMMENT ON VIEW transcript IS
    'The messages of each conversation as they are now. For an earlier version use context_at(); messages has the '
    'whole texts.';
COMMENT ON COLUMN transcript.new IS 'A star if no run has read the message yet.';
COMMENT ON COLUMN transcript.said IS 'The beginning of the text.';
COMMENT ON COLUMN transcript.version IS 'The version since which the message has this content.';
COMMENT ON COLUMN transcript.who IS 'The role of the message.';
COMMENT ON VIEW turns IS
    'What the user said in each conversation, what the assistant answered, and how long that took.';
COMMENT ON COLUMN turns.answer IS 'The beginning of what the assistant said up to the user''s next message.';
COMMENT ON COLUMN turns.turn IS 'The number of the user''s message in the current history, from 1.';
COMMENT ON COLUMN turns.wait_s IS 'Seconds from the end of the turn to the first text of the run that it requested.';
COMMENT ON VIEW waiting IS
    'Calls that wait for a person, or for the client that answers them; the most urgent first.';
COMMENT ON COLUMN waiting.call IS 'The beginning of the function''s name and its arguments.';
COMMENT ON COLUMN waiting.since IS 'When the call started.';
COMMENT ON COLUMN waiting.until IS 'When the wait ends; null if it has no end, or none that is a valid time.';
COMMENT ON COLUMN waiting.waits_for IS
    'What the call waits for: the person or system that its worker names, or `the client`.';
