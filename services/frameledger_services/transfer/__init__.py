"""Conversations as files.

`jsonl` is the form that loses nothing, and the only one that is read back: `exporting` writes it, and `importing` makes
rows of it again. `cloudevents`, `openai` and `parquet` are for other programs.
"""
