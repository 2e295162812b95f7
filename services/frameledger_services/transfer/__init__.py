"""Conversations as files.

`jsonl` is lossless, and the only format that can be imported: `exporting` writes it, and `importing` restores the rows
from it. `cloudevents`, `openai` and `parquet` are for other programs.
"""
