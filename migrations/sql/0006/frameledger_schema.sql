ALTER TABLE frameledger_schema ADD COLUMN compatible_from text;
COMMENT ON COLUMN frameledger_schema.compatible_from IS
    'The oldest revision whose release works with these tables too: an upgrade from it needs no stop.';
