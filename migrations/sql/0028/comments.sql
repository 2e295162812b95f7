COMMENT ON TABLE claims IS
    'Which worker runs which effect, with one row for each claimed effect. Old rows are deleted, by default after thirty '
    'days.';
COMMENT ON TABLE workers IS
    'Every session of every worker. A worker is alive while stopped_at is null and heartbeat_at is younger than its '
    'lease. Old sessions are deleted, by default after a year.';
COMMENT ON COLUMN tool_call_history.queued IS
    'Seconds from the announcement until the call started, or was settled without a start; null before that. queued + '
    'ran is the whole time of a call that started.';
