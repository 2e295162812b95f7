-- The meaning of tables, views and functions in plain English. Nothing but comments changes.
COMMENT ON TABLE frames IS
    'The archive of all frames. Every other table of a conversation can be computed from it again.';
COMMENT ON COLUMN frames.frame_id IS
    'The frame''s id. An id that is not a UUID is stored as a uuid5 of it; a missing one as a uuid5 of the record''s '
    'position on the log.';
COMMENT ON COLUMN frames.logged_at IS 'The broker''s time of the record; at least that of the preceding frame.';
COMMENT ON COLUMN frames.produced_at IS 'When the publisher created the frame; null if the frame has no valid time.';
COMMENT ON COLUMN frames.partition IS
    'The partition of the record; -1 for an imported frame, which is on no log of this database.';
COMMENT ON COLUMN frames.type IS 'The frame type.';
COMMENT ON COLUMN frames.outcome IS
    'applied (also if the frame is only recorded), ignored, unknown (type), or parked.';
COMMENT ON COLUMN frames.reason IS
    'Why the frame was ignored, one of a fixed set of codes; null for other outcomes.';
COMMENT ON COLUMN frames.run_id IS 'The run that the frame names.';
COMMENT ON COLUMN frames.tool_call_id IS 'The call that the frame names.';
COMMENT ON COLUMN frames.source IS 'The publisher''s name for itself (CloudEvents source).';
COMMENT ON COLUMN frames.trace_id IS 'The W3C trace id: 32 hexadecimal digits.';
COMMENT ON COLUMN frames.chain IS 'The value of the hash chain up to and including this frame; see verify_chain().';
COMMENT ON COLUMN frames.causation_id IS
    'The frame_id of the frame of this conversation that caused this one; null if a client published it on its own.';
COMMENT ON TABLE messages IS
    'Every message, with one row for each content that it had. The context at version v is the rows of its era with '
    'valid_from <= v < valid_to.';
COMMENT ON COLUMN messages.era IS 'The history that the message belongs to; see eras.';
COMMENT ON COLUMN messages.text IS 'The message as text for people: its content, or the calls that it makes.';
COMMENT ON COLUMN messages.run_id IS 'The run that produced the message; null if none did.';
COMMENT ON COLUMN messages.message IS 'The message as a model receives it.';
COMMENT ON COLUMN messages.said_at IS
    'When the frame that wrote this row was logged; null in rows of an older release until fill_said_at() is called.';
COMMENT ON TABLE eras IS 'Each replacement of a context''s whole history. An era lasts until the next one starts.';
COMMENT ON COLUMN eras.valid_from IS 'The version of the frame that replaced the whole history.';
COMMENT ON COLUMN eras.era IS
    'The number of the history that starts at valid_from. The first history is 1 and has no row.';
COMMENT ON TABLE context_settings IS
    'The settings that a request contains beside the messages, and the state of the context''s life. A name without '
    'a row has its default: no tools, no tool choice, no settings, false.';
COMMENT ON COLUMN context_settings.name IS
    'tools, tool_choice, settings, prompt_caching, skip_tts, recording, ended, limits, or mirror (the program that '
    'keeps the history elsewhere).';
COMMENT ON COLUMN context_settings.valid_from IS
    'The first version with this value. It holds until the next row of the same name.';
COMMENT ON COLUMN contexts.version IS 'The version of the newest stored frame.';
COMMENT ON COLUMN contexts.state_version IS
    'The version that state belongs to. Later frames are folded again when the context is loaded.';
COMMENT ON COLUMN contexts.run_version IS 'The version that the newest run read; 0 before the first run.';
COMMENT ON COLUMN contexts.parked_version IS
    'The first version that is stored but not folded; null if the conversation is not parked.';
COMMENT ON COLUMN contexts.parked_at IS 'When the conversation was parked, by the database''s clock.';
COMMENT ON COLUMN contexts.fold_version IS
    'The version of the fold that computed state. An older release refuses to load it.';
COMMENT ON COLUMN contexts.run_count IS 'Number of requested runs.';
COMMENT ON COLUMN contexts.duplicate_count IS 'Number of records that repeated a stored frame and were skipped.';
COMMENT ON COLUMN contexts.recording IS
    'True if the conversation takes place elsewhere and is only recorded; nothing is run for it.';
COMMENT ON COLUMN contexts.ended IS 'True if the conversation was ended and not reopened.';
COMMENT ON COLUMN contexts.open_run_id IS 'The open run; null if none is open.';
COMMENT ON COLUMN contexts.parked_error IS
    'The error of the fold or of the database because of which the conversation was parked.';
COMMENT ON COLUMN contexts.chain IS 'The value of the hash chain at version.';
COMMENT ON COLUMN contexts.turn_waits IS
    'True if the user stopped speaking and the turn waits for its final words; null if no turn is open.';
COMMENT ON COLUMN contexts.bot_since_version IS
    'The version at which the bot started to speak; null if it is not speaking.';
COMMENT ON COLUMN contexts.rebuilt IS
    'Number of times that a rebuild replaced the rows. A projector that loaded the context before that cannot write '
    'it.';
COMMENT ON COLUMN contexts.folded_by IS
    'Fold versions by range: [[1, 2], [58, 3]] means fold 2 from version 1 and fold 3 from version 58. Null if '
    'fold_version holds for all versions.';
COMMENT ON COLUMN contexts.origin IS
    'The conversation and version that this one was forked from: {context_id, version, chain}, the chain in '
    'hexadecimal. Null if it is not a fork.';
COMMENT ON COLUMN contexts.experiment IS 'True for an experiment, such as a rerun. Lists of conversations omit it.';
COMMENT ON TABLE runs IS 'Every inference, computed from frames only.';
COMMENT ON COLUMN runs.requested_version IS 'The version of the frame that first requested the run.';
COMMENT ON COLUMN runs.opened_version IS 'The version of the context that the run reads; null before it opens.';
COMMENT ON COLUMN runs.closed_version IS 'The version of the frame that closed the run.';
COMMENT ON COLUMN runs.requested_at IS 'When the frame that requested the run was logged.';
COMMENT ON COLUMN runs.opened_at IS 'When the run was opened.';
COMMENT ON COLUMN runs.started_at IS 'When the start of the latest attempt was logged.';
COMMENT ON COLUMN runs.first_text_at IS 'When the first text of the latest attempt was logged.';
COMMENT ON COLUMN runs.closed_at IS 'When the run was closed.';
COMMENT ON COLUMN runs.input_tokens IS 'Input tokens, as far as they are known; see usage_partial.';
COMMENT ON COLUMN runs.output_tokens IS 'Output tokens, as far as they are known; see usage_partial.';
COMMENT ON COLUMN runs.cache_read_tokens IS
    'Tokens read from the provider''s cache, as far as they are known; see usage_partial.';
COMMENT ON COLUMN runs.cache_write_tokens IS
    'Tokens written to the provider''s cache, as far as they are known; see usage_partial.';
COMMENT ON COLUMN runs.reasoning_tokens IS 'Reasoning tokens, as far as they are known; see usage_partial.';
COMMENT ON COLUMN runs.attempt IS
    'The number of the latest attempt; 0 before the first one, and for an answer that names no run.';
COMMENT ON COLUMN runs.trigger IS 'The type of the frame that first requested the run.';
COMMENT ON COLUMN runs.status IS
    'requested, open, dropped (before it opened), noted (in a recording), or how it was closed: ended, failed, '
    'interrupted, replaced, context_ended.';
COMMENT ON COLUMN runs.worker IS 'The worker that answers, by the name that it gives itself.';
COMMENT ON COLUMN runs.provider IS 'The provider of the model.';
COMMENT ON COLUMN runs.model IS 'The model.';
COMMENT ON COLUMN runs.error IS 'The message of the latest error.';
COMMENT ON COLUMN runs.error_code IS 'The code of the latest error.';
COMMENT ON COLUMN runs.request_sha256 IS 'The SHA-256 of the request as the provider received it.';
COMMENT ON COLUMN runs.heard_version IS
    'The version at which the user stopped speaking; null if the run does not answer a user''s turn.';
COMMENT ON COLUMN runs.started_version IS 'The version of the start of the latest attempt.';
COMMENT ON COLUMN runs.said IS
    'The generated text of an interrupted message, if the context keeps only the part that was heard.';
COMMENT ON COLUMN runs.usage_partial IS
    'True if the token counts are incomplete: the run has no end that reports them, or ended with an error.';
COMMENT ON COLUMN runs.claim IS 'The claim that the latest start names; see claims.token.';
COMMENT ON COLUMN runs.is_copy IS
    'True if `frameledger replay` republished the answer; null otherwise, and in rows of an older release.';
COMMENT ON TABLE tool_calls IS 'Every function call, computed from frames only.';
COMMENT ON COLUMN tool_calls.requested_version IS
    'The version of the frame that announced the call, or that started it if none announced it.';
COMMENT ON COLUMN tool_calls.started_version IS 'The version of the first start.';
COMMENT ON COLUMN tool_calls.settled_version IS 'The version of the frame that settled the call.';
COMMENT ON COLUMN tool_calls.requested_at IS 'When the frame that announced the call was logged.';
COMMENT ON COLUMN tool_calls.dispatched_at IS
    'When the call became ready to start: it was committed, and no earlier call of its queue was running.';
COMMENT ON COLUMN tool_calls.started_at IS 'When the first start was logged.';
COMMENT ON COLUMN tool_calls.settled_at IS 'When the call was settled.';
COMMENT ON COLUMN tool_calls.ordinal IS 'The index of the call among those of the same frame, from 0.';
COMMENT ON COLUMN tool_calls.attempt IS
    'The number of the latest attempt; 0 before the call starts, and for a start that names none.';
COMMENT ON COLUMN tool_calls.synchronous IS 'True if an interruption cancels the call; null before it starts.';
COMMENT ON COLUMN tool_calls.tool_call_id IS
    'The id that the provider gave. It may be used again after this call is settled.';
COMMENT ON COLUMN tool_calls.function_name IS 'The name of the function.';
COMMENT ON COLUMN tool_calls.status IS
    'announced, dispatched, running, waiting (for a person, or for the client that answers it), or how it ended: '
    'done, failed, ambiguous (it may or may not have happened), cancelled, forgotten.';
COMMENT ON COLUMN tool_calls.run_id IS 'The run that made the call; null if none did.';
COMMENT ON COLUMN tool_calls.group_id IS 'The id shared by calls that were announced together.';
COMMENT ON COLUMN tool_calls.worker IS 'The worker that runs the call, by the name that it gives itself.';
COMMENT ON COLUMN tool_calls.arguments IS 'The arguments; a JSON string if they were sent as text.';
COMMENT ON COLUMN tool_calls.result IS 'The final result; null if there is none.';
COMMENT ON COLUMN tool_calls.dispatched_version IS
    'The version at which the call became ready to start; its effect names this version.';
COMMENT ON COLUMN tool_calls.interrupted_version IS
    'The version of the interruption that cancels the call. Its worker still has to report the outcome.';
COMMENT ON COLUMN tool_calls.resolved_version IS
    'The version of the frame by which a person resolved an ambiguous call.';
COMMENT ON COLUMN tool_calls.timeout_secs IS
    'Seconds that the call may take after it was dispatched, as its start says.';
COMMENT ON COLUMN tool_calls.safe_to_retry IS
    'True if the function may run twice for one call; null before it starts.';
COMMENT ON COLUMN tool_calls.waiting_for IS
    'What the call waits for: the person or system that its worker names, or `the client`.';
COMMENT ON COLUMN tool_calls.waiting_deadline IS
    'When the wait ends; null if it has no end, or none that is a valid time.';
COMMENT ON COLUMN tool_calls.builtin IS 'True for a built-in function, such as the one that cancels a call.';
COMMENT ON COLUMN tool_calls.claim IS 'The claim that the latest start names; see claims.token.';
COMMENT ON COLUMN tool_calls.idempotency_key IS
    'The key that every attempt gives its handler, to pass to systems that must act only once; null in rows of an '
    'older release.';
COMMENT ON TABLE workers IS
    'Every session of every worker. A worker is alive while stopped_at is null and heartbeat_at is younger than its '
    'lease.';
COMMENT ON COLUMN workers.worker_id IS 'One session of one process. A restarted process is a new worker.';
COMMENT ON COLUMN workers.started_at IS 'When the worker registered, by the database''s clock.';
COMMENT ON COLUMN workers.connected_at IS
    'When its current connection started. It declares other workers dead only after a whole lease.';
COMMENT ON COLUMN workers.stopped_at IS
    'When the worker deregistered, or its last heartbeat if it died; null while it may be alive.';
COMMENT ON COLUMN workers.slots IS 'Number of jobs that it runs concurrently.';
COMMENT ON COLUMN workers.pid IS 'The process id on that host.';
COMMENT ON COLUMN workers.serves_all IS
    'True if it serves every function, or every model, that no live worker lists.';
COMMENT ON COLUMN workers.service IS 'The service that it belongs to. Workers of one service share their work.';
COMMENT ON COLUMN workers.host IS 'The host that it runs on.';
COMMENT ON COLUMN workers.offers IS
    'The functions with their schemas and options, or the options of an inference service''s requests.';
COMMENT ON TABLE claims IS
    'Which worker runs which effect, with one row for each claimed effect. Rows are kept for thirty days.';
COMMENT ON COLUMN claims.effect_id IS 'The effect. Only one worker can hold it: a second claim is refused.';
COMMENT ON COLUMN claims.requested_version IS 'For a call: the version of the frame that announced it.';
COMMENT ON COLUMN claims.claimed_at IS 'When the effect was first claimed, by the database''s clock.';
COMMENT ON COLUMN claims.taken_at IS 'When the latest attempt was claimed.';
COMMENT ON COLUMN claims.released_at IS
    'When the worker released it for another worker; null after it is claimed again.';
COMMENT ON COLUMN claims.finished_at IS 'When the work was finished; null until then.';
COMMENT ON COLUMN claims.ordinal IS 'For a call: its index among the calls of that frame.';
COMMENT ON COLUMN claims.attempt IS
    'The number of the latest attempt, higher than every folded one; attempt numbers come from here only. A release '
    'before anything was published subtracts one, so that it may be 0.';
COMMENT ON COLUMN claims.run_id IS 'For a run: its id.';
COMMENT ON COLUMN claims.tool_call_id IS 'For a call: its id.';
COMMENT ON COLUMN claims.service IS 'The service of the worker that holds the claim.';
COMMENT ON COLUMN claims.worker_id IS 'The worker that holds the claim.';
COMMENT ON COLUMN claims.finish IS 'done, over (the run or call had already ended), or given_up.';
COMMENT ON COLUMN claims.token IS
    'A random value of the attempt, which the worker''s frames name (`claim`). It distinguishes two workers that got '
    'the same attempt number from a database that lost its latest commits.';
COMMENT ON TABLE outbox IS 'Records that are not published yet: effects, dead letters, forwarded records.';
COMMENT ON COLUMN outbox.topic IS 'The topic of the record that caused the row.';
COMMENT ON COLUMN outbox.ordinal IS 'The index among the rows that the record caused, from 0.';
COMMENT ON COLUMN outbox.to_topic IS 'The topic to publish to.';
COMMENT ON COLUMN outbox.key IS 'The key to publish.';
COMMENT ON COLUMN outbox.value IS 'The value to publish.';
COMMENT ON COLUMN outbox.headers IS
    'The headers in order: [[name, value], ...]. A value is text, null, or {"base64": ...} if it is not UTF-8.';
COMMENT ON TABLE topics IS 'The topics that this database is filled from.';
COMMENT ON COLUMN topics.generation IS
    'Offsets are comparable within one generation. `frameledger recover` starts the next one.';
COMMENT ON COLUMN topics.partitions IS 'Number of partitions. Services stop if the broker has another number.';
COMMENT ON COLUMN topics.topic_id IS
    'The broker''s id of the topic. A different one means that the topic was deleted and created again.';
COMMENT ON COLUMN topics.recorded_at IS 'When the topic was first seen, by the database''s clock.';
COMMENT ON TABLE projections IS
    'The progress and the owner of each partition, written in the transaction of each batch.';
COMMENT ON COLUMN projections.topic IS 'The name of the topic.';
COMMENT ON COLUMN projections.epoch IS
    'Incremented when the partition gets another owner, which fences the previous one.';
COMMENT ON COLUMN projections.next_offset IS 'The next offset to read.';
COMMENT ON COLUMN projections.last_offset IS
    'The offset of the last record that was read; null before the first one.';
COMMENT ON COLUMN projections.end_offset IS 'The end of the partition when the owner last checked.';
COMMENT ON COLUMN projections.owner_started_at IS
    'When the owner''s database session started; a later session may have the same pid.';
COMMENT ON COLUMN projections.owner_pid IS 'The process id of the owner''s database session.';
COMMENT ON COLUMN projections.owner IS 'The process that reads the partition.';
COMMENT ON COLUMN projections.last_hash IS 'The SHA-256 of that record''s key, value and time.';
COMMENT ON COLUMN projections.sealed_at IS
    'When `frameledger recover` started the next generation; null in the current one. A sealed row has no owner.';
COMMENT ON COLUMN projections.effects_held_until IS
    'The end of the partition when the owner took it over. Until it is reached no effects are published and no work '
    'is claimed; -1 until the owner has read the end. Null after the owner caught up.';
COMMENT ON COLUMN projections.server_started_at IS
    'When PostgreSQL had last started or restarted after a crash, as of the time at which the owner took the '
    'partition over.';
COMMENT ON COLUMN projections.attempt IS
    'What the owner started to process at next_offset: batch, or record (the next one alone). Null before that, and '
    'after a regular end.';
COMMENT ON COLUMN projections.crashes IS
    'Number of owners that crashed while they processed records from next_offset on.';
COMMENT ON COLUMN projections.crashes_alone IS 'Number of those that were processing the next record alone.';
COMMENT ON TABLE recoveries IS
    'The receipts of `frameledger recover`: what had happened to each partition, and where its new generation '
    'starts.';
COMMENT ON COLUMN recoveries.generation IS 'The generation that was started.';
COMMENT ON COLUMN recoveries.recovered_at IS 'When the partition was recovered, by the database''s clock.';
COMMENT ON COLUMN recoveries.happened IS
    'What had happened to the partition: fine (nothing), lost_tail, expired (records expired before they were '
    'stored), another_log.';
COMMENT ON COLUMN recoveries.stored_offset IS 'The next_offset of the previous generation.';
COMMENT ON COLUMN recoveries.first_offset IS 'The first offset of the partition at that time.';
COMMENT ON COLUMN recoveries.end_offset IS 'The end of the partition at that time.';
COMMENT ON COLUMN recoveries.put_back_at IS 'When all lost records had been republished; null until then.';
COMMENT ON COLUMN recoveries.put_back IS 'Number of republished frames.';
COMMENT ON COLUMN recoveries.put_back_through IS 'The highest offset of a republished frame; null if there is none.';
COMMENT ON TABLE rebuilds IS
    'Every `frameledger rebuild` of more than one conversation, and its progress. An interrupted one continues from '
    'there.';
COMMENT ON COLUMN rebuilds.number IS 'The number of the rebuild.';
COMMENT ON COLUMN rebuilds.selection IS
    'The selected conversations: all, or unknown (those with frames of unknown type).';
COMMENT ON COLUMN rebuilds.source IS
    'Where the frames were read: frames (the table), or kafka (the log, from which missing rows were restored).';
COMMENT ON COLUMN rebuilds.applied IS 'True if rows were replaced; false if they were only compared.';
COMMENT ON COLUMN rebuilds.fold_version IS 'The version of the fold.';
COMMENT ON COLUMN rebuilds.started_at IS 'When the rebuild started, by the database''s clock.';
COMMENT ON COLUMN rebuilds.started_by IS 'The database user of the session that started it.';
COMMENT ON COLUMN rebuilds.updated_at IS 'When this row was last written.';
COMMENT ON COLUMN rebuilds.ended_at IS 'When the rebuild was complete; null until then.';
COMMENT ON COLUMN rebuilds.reached IS
    'The last conversation that is done; they are processed in the order of their ids. Null before the first one.';
COMMENT ON COLUMN rebuilds.failed_count IS 'Number of those that cannot be folded, or belong to a newer release.';
COMMENT ON TABLE prices IS
    'The price of a million tokens of a model from valid_from on. The operator maintains this table; it is empty at '
    'first. facts_runs.cost is computed from it.';
COMMENT ON COLUMN prices.provider IS
    'The provider, named as in runs.provider; empty for any provider. A price for a named provider takes precedence.';
COMMENT ON COLUMN prices.valid_from IS
    'When the price takes effect. It holds until the next one of the same model and provider.';
COMMENT ON COLUMN prices.input IS 'Price of a million input tokens.';
COMMENT ON COLUMN prices.output IS 'Price of a million output tokens.';
COMMENT ON COLUMN prices.cache_read IS
    'Price of a million tokens read from the provider''s cache; null: that of input.';
COMMENT ON COLUMN prices.cache_write IS
    'Price of a million tokens written to the provider''s cache; null: that of input.';
COMMENT ON COLUMN prices.reasoning IS 'Price of a million reasoning tokens; null: that of output.';
COMMENT ON TABLE rejected_frames IS
    'Dead letters: records that are not valid frames, or that the database refused, kept as received. They changed '
    'nothing.';
COMMENT ON COLUMN rejected_frames.logged_at IS 'When the broker received the record.';
COMMENT ON COLUMN rejected_frames.retried_at IS
    'When the record was last republished by `frameledger dlq retry`; null if it never was.';
COMMENT ON COLUMN rejected_frames.code IS 'The error code.';
COMMENT ON COLUMN rejected_frames.error IS 'The error message.';
COMMENT ON COLUMN rejected_frames.context_id IS 'The conversation; null if the key names none.';
COMMENT ON COLUMN rejected_frames.headers IS
    'The headers in order: [[name, value], ...]. A value is text, null, or {"base64": ...} if it is not UTF-8.';
COMMENT ON COLUMN outcome_changes.changed_at IS 'When the outcome was changed, by the database''s clock.';
COMMENT ON COLUMN outcome_changes.old_outcome IS 'The previous outcome.';
COMMENT ON COLUMN outcome_changes.old_reason IS 'The previous reason.';
COMMENT ON COLUMN outcome_changes.new_outcome IS 'The new outcome.';
COMMENT ON COLUMN outcome_changes.new_reason IS 'The new reason.';
COMMENT ON COLUMN outcome_changes.why IS 'Why it was changed, as given by the user.';
COMMENT ON TABLE erasures IS 'The receipts of erasures: all that is kept of an erased conversation.';
COMMENT ON COLUMN erasures.context_id IS 'The erased conversation.';
COMMENT ON COLUMN erasures.version IS
    'The version of the frame that erased the conversation, or that of its last frame if erase() deleted it without '
    'one. The next conversation with this id continues from this version.';
COMMENT ON COLUMN erasures.frame_count IS 'Number of deleted frames.';
COMMENT ON COLUMN erasures.erased_by IS
    'The database user that deleted the frames: a projector''s, or the caller of erase().';
COMMENT ON COLUMN erasures.chain IS 'The value of the hash chain at version.';
COMMENT ON COLUMN erasures.frame_id IS
    'The frame on the log that erased the conversation; null if erase() deleted it without one. Such a deletion does '
    'not outlast a rebuild from the log.';
COMMENT ON COLUMN erasures.requested_by IS 'Who requested the erasure, as that frame says.';
COMMENT ON COLUMN erasures.logged_at IS 'When the broker received that frame.';
COMMENT ON COLUMN erasures.generation IS 'The generation of the topic that the frame''s offset belongs to.';
COMMENT ON COLUMN erasures."offset" IS 'The offset of that frame.';
COMMENT ON COLUMN erasures.source IS 'The publisher of that frame, by the name that it gives itself.';
COMMENT ON COLUMN erasures.trace_id IS 'The trace id of that frame.';
COMMENT ON COLUMN erasures.places IS
    'Where the records of the deleted frames are on the log, which keeps them for its retention time: a list of '
    '{partition, generation, first_offset, last_offset, records}.';
COMMENT ON COLUMN erasures.late_count IS
    'Number of frames that arrived later for a run, a call or a turn of the erased conversation. They were skipped.';
COMMENT ON TABLE verified IS
    'The version up to which each conversation was verified without a difference, so that `frameledger verify` need '
    'not read it again. It is no proof: a user who can write the tables can write this one.';
COMMENT ON COLUMN verified.verified_at IS 'When it was verified, by the database''s clock.';
COMMENT ON COLUMN verified.fold_version IS 'The version of the fold that was used.';
COMMENT ON COLUMN verified.chain IS 'The value of the hash chain at that version.';
COMMENT ON COLUMN verified.state IS 'The state at that version, from which the next verification continues.';
COMMENT ON TABLE frameledger_schema IS 'The schema revision of this database.';
COMMENT ON COLUMN frameledger_schema.version_num IS 'The number of the latest migration.';
COMMENT ON COLUMN frameledger_schema.compatible_from IS
    'The oldest revision whose release also works with these tables: an upgrade from it needs no stop.';
COMMENT ON TRIGGER keep_frames ON frames IS
    'Rejects UPDATE and DELETE of frames, also by the owner and a superuser, except those of settle_outcome() and of '
    'erasures; see keep_frames().';
COMMENT ON TRIGGER keep_all_frames ON frames IS 'Rejects TRUNCATE of frames.';
