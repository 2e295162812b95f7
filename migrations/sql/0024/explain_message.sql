CREATE OR REPLACE FUNCTION explain_message(context_id text, "position" integer, at_version bigint DEFAULT NULL) RETURNS json
LANGUAGE plpgsql STABLE PARALLEL SAFE
AS $$
#variable_conflict use_column
DECLARE
    asked_version bigint;
    asked_era integer;
    origin messages;
    born frames;
    call tool_calls;
    after_version bigint;
    answer_of text;
BEGIN
    SELECT coalesce(at_version, version) INTO asked_version
    FROM contexts
    WHERE context_id = explain_message.context_id AND coalesce(at_version, 0) BETWEEN 0 AND version
        -- As context_at(): a version before an erasure does not exist any more.
        AND (coalesce(at_version, 0) = 0 OR at_version >= (
            SELECT min(version) - 1 FROM frames WHERE context_id = explain_message.context_id
        ));
    asked_era := era_at(context_id, asked_version);

    SELECT * INTO origin
    FROM messages
    WHERE context_id = explain_message.context_id AND era = asked_era AND position = explain_message.position
    ORDER BY valid_from
    LIMIT 1;
    IF asked_version IS NULL OR origin.context_id IS NULL THEN
        RETURN NULL;
    END IF;
    SELECT * INTO born FROM frames WHERE context_id = origin.context_id AND version = origin.valid_from;

    -- The frame by which a call of a client's function starts names no call, or the one before it in its queue. So the
    -- message says whose it is: a call's two messages lie side by side.
    SELECT started.* INTO call
    FROM messages AS answer
    JOIN tool_calls AS started
        ON started.context_id = answer.context_id
            AND started.requested_version <= answer.valid_from
            AND started.started_version = answer.valid_from
            AND started.tool_call_id = json_text(answer.message, 'tool_call_id')
    WHERE answer.context_id = origin.context_id
        AND answer.era = origin.era
        AND answer.position = origin.position + CASE origin.role WHEN 'assistant' THEN 1 ELSE 0 END
        AND answer.valid_from = origin.valid_from
        AND answer.role = 'tool';

    IF call.context_id IS NULL AND born.tool_call_id IS NOT NULL THEN
        SELECT * INTO call
        FROM tool_calls
        WHERE context_id = origin.context_id
            AND requested_version <= origin.valid_from
            AND tool_call_id = born.tool_call_id
        ORDER BY requested_version DESC, ordinal DESC
        LIMIT 1;
    ELSIF call.context_id IS NULL AND origin.role IN ('tool', 'developer') THEN
        -- The end of a conversation settles calls without naming them.
        SELECT * INTO call
        FROM tool_calls
        WHERE context_id = origin.context_id
            AND requested_version <= origin.valid_from
            AND settled_version = origin.valid_from
            AND CASE origin.role
                WHEN 'tool' THEN tool_call_id = json_text(origin.message, 'tool_call_id')
                -- The content is JSON with this key; the result behind it is a string, in which quotes are escaped.
                ELSE strpos(json_text(origin.message, 'content'), '"tool_call_id":' || to_json(tool_call_id)::text) > 0
            END
        -- An id that was used again.
        ORDER BY requested_version DESC, ordinal DESC
        LIMIT 1;
    END IF;

    answer_of := coalesce(origin.run_id, call.run_id);
    IF origin.run_id IS NOT NULL THEN
        -- One response may be several messages: this one's words begin after the message before it, or where the latest
        -- attempt before it began.
        SELECT max(version) INTO after_version
        FROM (
            SELECT max(version) AS version
            FROM frames, (SELECT opened_version FROM runs WHERE context_id = origin.context_id AND run_id = answer_of) AS run
            WHERE context_id = origin.context_id AND version > run.opened_version AND version < origin.valid_from
                AND coalesce(run_id, answer_of) = answer_of AND type LIKE '%ResponseStartFrame' AND outcome = 'applied'
            UNION ALL
            -- The message before it may be of the history before.
            SELECT min(valid_from)
            FROM messages
            WHERE context_id = origin.context_id AND role = 'assistant' AND run_id = answer_of AND era < origin.era
                AND valid_from < origin.valid_from AND valid_from > (
                    SELECT opened_version FROM runs WHERE context_id = origin.context_id AND run_id = answer_of
                )
            GROUP BY era, position
            UNION ALL
            SELECT valid_from
            FROM (
                SELECT valid_from, run_id
                FROM messages
                WHERE context_id = origin.context_id AND era = origin.era AND position < origin.position
                    AND (born.type = 'LLMThoughtEndFrame') = (role IS DISTINCT FROM 'assistant')
                ORDER BY position DESC, valid_from
                LIMIT 1
            ) AS before
            WHERE run_id = answer_of
        ) AS earlier;
    END IF;

    RETURN json_build_object(
        'context_id', origin.context_id,
        'era', origin.era,
        'position', origin.position,
        'at_version', asked_version,
        'there', EXISTS (
            SELECT FROM messages
            WHERE context_id = origin.context_id AND era = origin.era AND position = origin.position
                AND valid_from <= asked_version AND valid_to > asked_version
        ),
        'role', origin.role,
        'from', CASE
            WHEN call.context_id IS NOT NULL THEN 'call'
            WHEN origin.run_id IS NOT NULL THEN 'run'
            ELSE 'client'
        END,
        'readings', (
            SELECT json_agg(
                json_build_object(
                    'from', reading.valid_from,
                    'to', nullif(reading.valid_to, 9223372036854775807),
                    'text', reading.text,
                    'message', reading.message,
                    'began_by', (
                        SELECT frame_as_json(frames) FROM frames
                        WHERE context_id = reading.context_id AND version = reading.valid_from
                    ),
                    'ended_by', (
                        SELECT frame_as_json(frames) FROM frames
                        WHERE context_id = reading.context_id AND version = reading.valid_to
                    )
                )
                ORDER BY reading.valid_from
            )
            FROM messages AS reading
            WHERE context_id = origin.context_id AND era = origin.era AND position = origin.position
        ),
        'streamed', CASE
            WHEN origin.run_id IS NOT NULL THEN (
                SELECT json_build_object('from', min(version), 'to', max(version), 'frames', count(*))
                FROM frames
                WHERE context_id = origin.context_id AND version > after_version AND version <= origin.valid_from
                    AND coalesce(run_id, origin.run_id) = origin.run_id AND outcome = 'applied'
                    AND type = ANY (
                        CASE born.type
                            WHEN 'LLMThoughtEndFrame' THEN ARRAY['LLMThoughtTextFrame']
                            ELSE ARRAY['LLMTextFrame', 'VisionTextFrame', 'TextFrame']
                        END
                    )
            )
        END,
        'heard', CASE
            WHEN origin.role = 'user' THEN (
                SELECT json_agg(
                    json_build_object('frame', frame_as_json(said), 'text', json_text(said.payload, 'text'))
                    ORDER BY said.version
                )
                FROM heard_for(origin.context_id, origin.era, origin.position) AS said
                WHERE born.type NOT IN ('LLMMessagesAppendFrame', 'LLMMessagesUpdateFrame', 'LLMContextFrame')
            )
        END,
        'run', explain_run(origin.context_id, answer_of),
        'call', explain_call(origin.context_id, call.requested_version, call.ordinal),
        'causes', (
            SELECT json_agg(
                json_build_object(
                    'version', cause.version,
                    'type', cause.type,
                    'source', cause.source,
                    'frame_id', cause.frame_id,
                    'depth', cause.depth
                )
                ORDER BY cause.depth
            )
            FROM causes(origin.context_id, origin.valid_from) AS cause
        )
    );
END
$$;

COMMENT ON FUNCTION explain_message(text, integer, bigint) IS
    'Returns why a message exists, as one JSON object: each content that it had, with the frames that wrote and '
    'replaced it; its origin, which is a run (explain_run), a call (explain_call) with the run that made it, or a '
    'client with the transcriptions that the message consists of; the range of versions in which its text was '
    'streamed; and the causes of the frame that first wrote it. The position is that within the era at the version, '
    'or at the newest one; there says whether the context has the message at that version. Null if that era has no '
    'such position, or if the version was erased.';
