"""The projector: folds the frames of the log into PostgreSQL, each exactly once.

Start with `commits`: one transaction per batch, or a single statement for a small one. `service` runs the process, and
`prefetch` buffers the next records while a batch is stored.
"""
