ALTER TABLE runs ADD COLUMN claim text;

COMMENT ON COLUMN runs.claim IS 'The claim that its latest start names: `token` in `claims`.';
