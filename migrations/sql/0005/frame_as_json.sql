CREATE FUNCTION frame_as_json(frame frames) RETURNS json
LANGUAGE sql STABLE PARALLEL SAFE
RETURN json_build_object(
    'version', frame.version,
    'type', frame.type,
    'logged_at', frame.logged_at,
    'outcome', frame.outcome,
    'reason', frame.reason,
    'source', frame.source,
    'run_id', frame.run_id,
    'tool_call_id', frame.tool_call_id,
    'frame_id', frame.frame_id,
    'causation_id', frame.causation_id
);

COMMENT ON FUNCTION frame_as_json(frames) IS 'A row of frames as a JSON object, without its payload and its place on the log.';
