-- What earlier migrations say of these, in plainer words.
COMMENT ON TABLE workers IS
    'Every session of every worker. It is alive while stopped_at is null and heartbeat_at younger than its lease.';
COMMENT ON TABLE claims IS
    'Which worker runs which effect: one row for each effect that was claimed. Kept for thirty days.';
COMMENT ON TABLE outbox IS
    'What is still to be published: effects, dead letters, forwarded records.';
COMMENT ON TABLE rejected_frames IS
    'Dead letters: records that are no frame, or that the database refused, kept as received. They change '
    'nothing.';
COMMENT ON TABLE contexts IS
    'The current state of every conversation, one row each.';
COMMENT ON TABLE projections IS
    'How far each partition was read, and its owner; written in the transaction of each batch.';
COMMENT ON TABLE recoveries IS
    'The receipts of recover: what was wrong with each partition, and where its new generation begins.';
COMMENT ON COLUMN frames.version IS
    'Sequence number of the frame within its context, from 1, without gaps.';
COMMENT ON COLUMN frames.logged_at IS
    'The broker''s time of the record, but never before that of the frame that precedes it.';
COMMENT ON COLUMN frames."offset" IS
    'The offset of the record in its partition.';
COMMENT ON COLUMN frames.outcome IS
    'applied (also if only recorded), ignored, unknown, or parked.';
COMMENT ON COLUMN frames.chain IS
    'The link of the hash chain up to and including this frame; see verify_chain().';
COMMENT ON COLUMN frames.source IS
    'The publisher, as it names itself (CloudEvents source).';
COMMENT ON COLUMN frames.causation_id IS
    'Reserved: always null.';
COMMENT ON COLUMN messages.position IS
    'Position in the history: assigned once, never reused or moved. There are gaps.';
COMMENT ON COLUMN messages.valid_from IS
    'The first version of the context at which the message has this content.';
COMMENT ON COLUMN messages.valid_to IS
    'The first version at which it no longer has this content; the largest bigint while it is current.';
COMMENT ON COLUMN messages.role IS
    'The role: system, user, assistant, tool, developer ...';
COMMENT ON COLUMN contexts.version IS
    'The number of its frames that are stored.';
COMMENT ON COLUMN contexts.run_version IS
    'The version that its newest run read; 0 before the first run.';
COMMENT ON COLUMN contexts.message_count IS
    'Number of current messages.';
COMMENT ON COLUMN contexts.run_count IS
    'Number of runs that were requested.';
COMMENT ON COLUMN contexts.call_count IS
    'Number of calls that were announced or started.';
COMMENT ON COLUMN contexts.open_call_count IS
    'Number of calls that are not settled.';
COMMENT ON COLUMN contexts.interruption_count IS
    'Number of interruptions.';
COMMENT ON COLUMN contexts.unknown_count IS
    'Number of frames of unknown type.';
COMMENT ON COLUMN contexts.duplicate_count IS
    'Number of records that repeated a stored frame and were left out.';
COMMENT ON COLUMN contexts.recording IS
    'It mirrors a conversation that happens elsewhere; nothing is run for it.';
COMMENT ON COLUMN contexts.ended IS
    'It was ended and not reopened since.';
COMMENT ON COLUMN contexts.state IS
    'The open part of the conversation (turn, runs, calls), as the fold stores it.';
COMMENT ON COLUMN runs.worker IS
    'The worker that answers, as it names itself.';
COMMENT ON COLUMN tool_calls.worker IS
    'The worker that runs it, as it names itself.';
COMMENT ON COLUMN tool_calls.progress_count IS
    'Number of intermediate results.';
COMMENT ON COLUMN workers.worker_id IS
    'One session of one process: after a restart it is another worker.';
COMMENT ON COLUMN workers.connected_at IS
    'Since when it has been connected; it judges other workers only after a whole lease.';
COMMENT ON COLUMN workers.heartbeat_at IS
    'Time of its last heartbeat, by the database''s clock.';
COMMENT ON COLUMN workers.lease_secs IS
    'Seconds after its last heartbeat at which it counts as dead.';
COMMENT ON COLUMN workers.slots IS
    'Number of jobs that it runs at once.';
COMMENT ON COLUMN workers.serves_all IS
    'It serves whatever no live worker lists: any function, or any model.';
COMMENT ON COLUMN claims.effect_id IS
    'The effect. One worker has it: a second one''s claim is refused.';
COMMENT ON COLUMN claims.claimed_at IS
    'When it was first claimed, by the database''s clock.';
COMMENT ON COLUMN claims.taken_at IS
    'When its latest attempt was claimed.';
COMMENT ON COLUMN outbox.ordinal IS
    'Its index among the rows that the record caused, from 0.';
COMMENT ON COLUMN topics.generation IS
    'Offsets are comparable within one generation; recover begins the next one.';
COMMENT ON COLUMN topics.partitions IS
    'Number of partitions; services stop if the broker has another.';
COMMENT ON COLUMN projections.projection IS
    'The name of the projection.';
COMMENT ON COLUMN projections.topic IS
    'The topic that it reads.';
COMMENT ON COLUMN projections.owner IS
    'The process that reads it now.';
COMMENT ON COLUMN projections.epoch IS
    'Raised whenever the partition changes hands, which fences the owner before.';
COMMENT ON COLUMN recoveries.happened IS
    'What was wrong with the partition: fine (nothing), lost_tail, expired (before it was stored), another_log.';
COMMENT ON COLUMN recoveries.stored_offset IS
    'next_offset of the generation before.';
COMMENT ON COLUMN recoveries.begins_at IS
    'The first offset of the new generation.';
COMMENT ON COLUMN recoveries.missing IS
    'Number of offsets that expired before they were stored.';
COMMENT ON COLUMN recoveries.recovered_by IS
    'The database user of the session.';
COMMENT ON COLUMN outcome_changes.version IS
    'The version of the frame.';
COMMENT ON COLUMN outcome_changes.old_outcome IS
    'The outcome before.';
COMMENT ON COLUMN outcome_changes.new_outcome IS
    'The outcome since.';
COMMENT ON COLUMN outcome_changes.changed_by IS
    'The database user of the session.';
COMMENT ON COLUMN outcome_changes.why IS
    'The reason that was given.';
COMMENT ON COLUMN erasures.erased_at IS
    'The start of the transaction that erased it.';
COMMENT ON COLUMN erasures.erased_by IS
    'The database user of the session.';
COMMENT ON COLUMN erasures.why IS
    'The reason that was given.';
