COMMENT ON COLUMN runs.usage_partial IS
    'True if the token counts are only what was reported before an end that the run does not have, or that was an error. '
    'False also if nothing was reported: then they are null.';
COMMENT ON COLUMN facts_runs.usage_partial IS
    'True if the token counts are only what was reported before an end that the run does not have, or that was an error. '
    'False also if nothing was reported: then they are null.';
