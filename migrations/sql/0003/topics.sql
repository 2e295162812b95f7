COMMENT ON COLUMN topics.generation IS 'Lasts as long as its offsets count on; recover begins the next one.';
