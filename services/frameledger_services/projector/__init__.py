"""The projector: what is on the log, folded into Postgres, each frame once.

Start with `batches`: one transaction per batch. `service` is the process around it.
"""
