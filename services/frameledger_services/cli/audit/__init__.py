"""Commands of audit: what happened, why something is there, and whether anything was changed."""
