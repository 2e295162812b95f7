"""Writes rows in `runs` for answers without a run, so that models that run elsewhere are counted too (RA5.counted)."""

from __future__ import annotations

from typing import Any

from frameledger.evolve.state import Response, State
from frameledger.evolve.text import trimmed
from frameledger.frames import (
    AnyFrame,
    CancelFrame,
    EndFrame,
    ErrorFrame,
    InterruptionFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    Usage,
)
from frameledger_services.projector.head import Head
from frameledger_services.projector.row_values import clean, clean_or_none
from frameledger_services.projector.rows import Rows

TOKENS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens")

MAX_TOKENS = 10**12
"""The maximum of each kind of tokens in a row. A frame may have any 8-byte number, and a sum of two such numbers would
overflow: every view and every limit of tokens would fail, for all conversations."""

Row = dict[str, Any]


def write_counted(
    rows: Rows, head: Head, frame: AnyFrame, before: State, after: State, logged_at: Any
) -> None:
    """Add what a frame reports about such an answer: its start, first text, tokens or end.

    Its row has the status `noted` until it ends. No worker runs it, so it is neither waited for nor taken over.
    """
    was, now = before.speech.response, after.speech.response
    version = int(after.version)
    goes_on = was is not None and now is not None and was.opened_version == now.opened_version
    if was is not None and was.counts_as is not None:
        row = rows.run(head.context_id, was.counts_as)
        if goes_on:
            row.update(_progress_columns(frame, before, now, logged_at))
        else:
            row.update(_end_columns(frame, was), closed_version=version, closed_at=logged_at)
    if now is not None and now.counts_as is not None and not goes_on:
        if before.runs.noted != now.counts_as:
            head.counters.runs += 1
            rows.new_runs[head.context_id, now.counts_as] = {
                "context_id": head.context_id,
                "run_id": now.counts_as,
                "requested_version": version,
                "requested_at": logged_at,
                "trigger": frame.type,
                "status": "noted",
            }
        row = rows.run(head.context_id, now.counts_as)
        row.update(started_version=version, started_at=logged_at)
        if "replay_of" in frame.metadata:
            # Its cost was counted with the original.
            row["is_copy"] = True
        if isinstance(frame, LLMFullResponseStartFrame):
            row.update(
                worker=frame.worker,
                provider=clean_or_none(frame.provider),
                model=clean_or_none(frame.model),
                request_sha256=clean_or_none(frame.request_sha256),
            )


def is_of_a_run(frame: ErrorFrame) -> bool:
    """Returns whether an error is one of a run. One that names a call and no run, and ends nothing, is of that call: a
    function may fail while any run is open."""
    return frame.run_id is not None or frame.tool_call_id is None or frame.fatal


def used(usage: Usage, *, partial: bool) -> Row:
    """Returns the columns of an answer's usage. `partial` means that more may follow, or that the rest is unknown."""
    counts = {name: getattr(usage, name) for name in TOKENS}
    row: Row = {name: None if count is None else min(count, MAX_TOKENS) for name, count in counts.items()}
    return row | {"usage_partial": partial}


def _progress_columns(frame: AnyFrame, before: State, now: Response | None, logged_at: Any) -> Row:
    changed: Row = {}
    was = before.speech.response
    if (
        was is not None
        and was.text is None
        and not before.speech.said
        and now is not None
        and now.text is not None
    ):
        changed["first_text_at"] = logged_at
    if isinstance(frame, LLMTextFrame) and frame.usage is not None:
        changed |= used(frame.usage, partial=True)
    if isinstance(frame, ErrorFrame) and is_of_a_run(frame):
        changed |= {"error": clean(frame.message), "error_code": clean_or_none(frame.code)}
    return changed


def _end_columns(frame: AnyFrame, was: Response) -> Row:
    if isinstance(frame, LLMFullResponseEndFrame):
        failed = frame.finish_reason == "error"
        ended: Row = {"status": "failed" if failed else "ended", "finish_reason": frame.finish_reason}
        return ended if frame.usage is None else ended | used(frame.usage, partial=failed)
    if isinstance(frame, InterruptionFrame):
        heard = None if frame.heard_text is None else clean(trimmed(was.text)) or None
        return {"status": "interrupted", "said": heard}
    if isinstance(frame, ErrorFrame):
        return {"status": "failed", "error": clean(frame.message), "error_code": clean_or_none(frame.code)}
    if isinstance(frame, EndFrame | CancelFrame):
        return {"status": "context_ended"}
    # Another answer began, or an input stopped this one (R7.4).
    return {"status": "replaced" if isinstance(frame, LLMFullResponseStartFrame) else "interrupted"}
