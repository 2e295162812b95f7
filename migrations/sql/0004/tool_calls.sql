ALTER TABLE tool_calls
    ADD COLUMN claim           text,
    ADD COLUMN idempotency_key uuid;

COMMENT ON COLUMN tool_calls.claim IS 'The claim that its latest start names: `token` in `claims`.';
COMMENT ON COLUMN tool_calls.idempotency_key IS
    'The key that every attempt of it gives to its handler, to send along to whoever must do it once; null in rows that '
    'an older release wrote.';
