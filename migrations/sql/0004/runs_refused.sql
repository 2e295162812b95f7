CREATE INDEX runs_refused ON runs (closed_at) WHERE error_code IN ('context_refused', 'unmappable');
