COMMENT ON COLUMN tool_calls.timeout_secs IS 'The seconds that it may take since it was dispatched, as its start says.';
