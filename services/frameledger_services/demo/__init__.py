"""A conversation on the real road: recorded people talk, services answer, SQL shows it, and the log proves it.

What it looks like is `cli/demo/render.py`; `cli/demo/command.py` puts the two together. Start reading with `recording`.
"""
