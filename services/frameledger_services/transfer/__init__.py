"""Conversations as files.

`jsonl` is lossless, and the only format that can be imported: `exporting` writes it, and `importing` turns it into rows
again. `cloudevents`, `openai` and `parquet` are for other programs.
"""
