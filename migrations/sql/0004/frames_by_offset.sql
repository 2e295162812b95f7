-- Frames are added about in the order of their offsets, so a small index by blocks finds the tail of a partition.
CREATE INDEX frames_by_offset ON frames USING brin ("offset") WITH (autosummarize = on);
