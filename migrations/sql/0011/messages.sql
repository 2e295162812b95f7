ALTER TABLE messages ADD COLUMN said_at timestamptz;

COMMENT ON COLUMN messages.said_at IS
    'When the frame that wrote it was logged; null in rows that an older release wrote, until fill_said_at() was called.';
