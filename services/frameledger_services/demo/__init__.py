"""The demo's conversation on real servers: recorded people talk, services answer, and SQL is compared with the log.

`cli/demo/performance.py` runs it, and `cli/demo/render.py` prints it. Start reading with `recording`.
"""
