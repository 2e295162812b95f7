-- No row is written again for it.
ALTER TABLE claims ADD COLUMN deaths integer NOT NULL DEFAULT 0;

COMMENT ON COLUMN claims.deaths IS
    'Number of attempts whose worker died. An attempt that its worker released is none.';
