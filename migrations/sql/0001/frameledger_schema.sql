-- Alembic has made it, without a word.
COMMENT ON TABLE frameledger_schema IS 'The shape that this database has.';
COMMENT ON COLUMN frameledger_schema.version_num IS 'The number of the migration that ran last.';
