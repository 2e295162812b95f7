"""The projector: folds the frames of the log into PostgreSQL, each exactly once.

Start with `commits`: one transaction per batch, which for a small one is one statement. `service` is the process around
it, and `prefetch` buffers the next records meanwhile.
"""
