ALTER TABLE contexts
    ADD COLUMN rebuilt integer NOT NULL DEFAULT 0,
    ADD COLUMN folded_by json;

COMMENT ON COLUMN contexts.rebuilt IS
    'How often its rows were replaced by a new fold of its frames. A projector that loaded it before is refused.';
COMMENT ON COLUMN contexts.folded_by IS
    'Fold versions by range: [[1, 2], [58, 3]] is fold 2 from version 1 and fold 3 from version 58. Null: all of it '
    'by fold_version.';
