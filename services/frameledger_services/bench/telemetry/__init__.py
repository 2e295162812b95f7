"""What it costs to be watched: the road and the workers with metrics or traces, beside the same without."""
