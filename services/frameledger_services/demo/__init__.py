"""A recorded conversation, played onto the real road: published as it happened, and read back from SQL.

What it looks like is `cli/demo_page.py`; `cli/demo.py` puts the two together.
"""
