"""The projector: what is on the log, folded into Postgres, each frame once.

Start with `commits`: one transaction per batch, which for a small one is one statement. `service` is the process around
it, and `prefetch` what it reads meanwhile.
"""
