"""The explanation of a message that `explain_message` returns, as text of at most `MAX_LINES` lines."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from frameledger_services.cli.terminal import escape, suggestion
from frameledger_services.cli.terminal.column_text import clock, frame_type, short_id
from frameledger_services.cli.terminal.pager import Page
from frameledger_services.cli.terminal.plural import plural

MAX_LINES = 40

READINGS, HEARD, CALL_FRAMES, LOST, CAUSES = 4, 3, 4, 6, 3
"""Maximum lines of each kind. Of more, the first and the last ones are shown, and the number left out."""

Row = tuple[str, str]
"""A name and a text. A row without text is a heading; a row with neither is an empty line."""

_NAME = 14


def render(page: Page, explanation: Mapping[str, Any], traces: Sequence[str]) -> None:
    """Print an explanation, with the addresses of these traces below it."""
    for name, text in _rows(explanation):
        if not text:
            page.whole(escape.one_line(name), "bold")
        else:
            page.line((f"  {escape.one_line(name):<{_NAME}}", "cyan"), (escape.one_line(text), ""))
    for address in traces:
        page.whole(f"  {'trace':<{_NAME}}{address}", "cyan")


def _rows(explanation: Mapping[str, Any]) -> Iterator[Row]:
    there = "" if explanation["there"] else ", where it is not in the context"
    yield (
        f"{explanation['context_id']}: message {explanation['position']} at version {explanation['at_version']}{there}",
        "",
    )
    readings = explanation["readings"]
    # Its text at that version, or its last text.
    read = [one for one in readings if one["from"] <= explanation["at_version"]] or readings[:1]
    yield (
        explanation["role"] or "message",
        read[-1]["text"] or json.dumps(read[-1]["message"], ensure_ascii=False),
    )
    yield from _few((row for one in readings for row in _reading(one, readings)), READINGS)
    if (streamed := explanation["streamed"]) and streamed["frames"]:
        yield "streamed", f"{plural(streamed['frames'], 'frame')} of text, {_range(streamed)}"
    heard = [("heard", f"{_frame(one['frame'])}: {one['text']}") for one in explanation["heard"] or ()]
    yield from _few(iter(heard), HEARD)
    if (call := explanation["call"]) is not None:
        yield from _call(call)
    if (run := explanation["run"]) is not None:
        yield from _run(explanation["context_id"], run)
    lost = [*_lost(run, read[-1]["text"]), *_lost_of_call(call)]
    if lost:
        yield "", ""
        yield "Thrown away", ""
        yield from _few(iter(lost), LOST)
    yield "", ""
    yield "Causes", ""
    causes = [(f"version {one['version']}", _by(one)) for one in explanation["causes"]]
    yield from _few(iter(causes), CAUSES)


def _reading(reading: Mapping[str, Any], readings: Sequence[Mapping[str, Any]]) -> Iterator[Row]:
    """Yields the frames that wrote and removed this text."""
    began = _frame(reading["began_by"])
    first = reading is readings[0]
    yield "written by" if first else "rewritten by", began if first else f"{began}: {reading['text'] or ''}"
    if reading is readings[-1] and reading["to"] is not None:
        yield "removed by", _frame(reading["ended_by"])


def _run(context_id: str, run: Mapping[str, Any]) -> Iterator[Row]:
    yield "", ""
    yield f"Run {run['run_id']}", ""
    became = run["status"] if run["finish_reason"] is None else f"{run['status']} ({run['finish_reason']})"
    model = " of ".join(filter(None, (run["model"], run["provider"])))
    tried = f"attempt {run['attempt']}" if run["attempt"] else ""
    worker = run["worker"] and f"worker {run['worker']}"
    yield "status", ", ".join(filter(None, (became, tried, model, worker)))
    if run["asked_by"] is not None:
        yield "requested by", _frame(run["asked_by"])
    if run["saw_version"] is not None:
        version = str(run["saw_version"])
        yield "saw", f"version {version}: {suggestion.command('show', context_id, options=('--at', version))}"
    if run["request_sha256"] is not None:
        yield "request", f"sha256 {run['request_sha256']}"
    yield (
        "times",
        _times(run["times"], {"started_at": "started", "first_text_at": "text", "closed_at": "closed"}),
    )
    used = {name: count for name, count in run["usage"].items() if name != "partial" and count is not None}
    if used:
        counts = ", ".join(
            f"{count} {name.removesuffix('_tokens').replace('_', ' ')}" for name, count in used.items()
        )
        yield "tokens", counts + (" (incomplete)" if run["usage"]["partial"] else "")
    if run["error"] is not None:
        yield "error", run["error"]


def _call(call: Mapping[str, Any]) -> Iterator[Row]:
    yield "", ""
    yield f"Call {call['tool_call_id']}", ""
    arguments = call["arguments"]
    written = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    yield "function", f"{call['function_name']} {written}"
    tried = f"attempt {call['attempt']}" if call["attempt"] else ""
    waits = call["waiting_for"] and f"waits for {call['waiting_for']}"
    worker = call["worker"] and f"worker {call['worker']}"
    later = [
        f"{what} at version {version}"
        for what in ("interrupted", "resolved")
        if (version := call["versions"][what]) is not None
    ]
    yield "status", ", ".join(filter(None, (call["status"], *later, tried, worker, waits)))
    names = {"dispatched_at": "dispatched", "started_at": "started", "settled_at": "settled"}
    yield "times", _times(call["times"], names)
    applied = [_of_call(one) for one in call["frames"] if one["frame"]["outcome"] != "ignored"]
    yield from _few((("frame", one) for one in applied), CALL_FRAMES)


def _lost(run: Mapping[str, Any] | None, heard_text: str | None) -> Iterator[Row]:
    """Yields the output of a run that is not in the context."""
    if run is None:
        return
    if run_text := run["said"]:
        if heard_text and run_text.startswith(heard_text):
            yield "never heard", f'"{run_text.removeprefix(heard_text).strip()}"'
        else:
            # Another message of the run has the part that was heard.
            yield "heard in part", f'"{run_text}"'
    for attempt in run["attempts"]:
        if attempt["superseded"]:
            words = f': "{attempt["text"]}"' if attempt["text"] else ""
            yield (
                f"attempt {attempt['attempt']}",
                f"superseded, {plural(attempt['frames'], 'frame')}, {_range(attempt)}{words}",
            )
    for ignored in run["ignored"]:
        words = f': "{ignored["text"]}"' if ignored["text"] else ""
        yield "ignored", f"{_frame(ignored['frame'])}, {ignored['frame']['reason']}{words}"


def _lost_of_call(call: Mapping[str, Any] | None) -> Iterator[Row]:
    for entry in call["frames"] if call is not None else ():
        if entry["frame"]["outcome"] == "ignored":
            yield "ignored", f"{_of_call(entry)}, {entry['frame']['reason']}"


def _of_call(entry: Mapping[str, Any]) -> str:
    attempt = entry["attempt"] and f"attempt {entry['attempt']}"
    return ", ".join(filter(None, (_frame(entry["frame"]), attempt, entry["worker"])))


def _few(rows: Iterator[Row], most: int) -> Iterator[Row]:
    """Yields at most `most` rows: the first, the number left out, and the last ones."""
    all_of_them = list(rows)
    if len(all_of_them) <= most:
        yield from all_of_them
        return
    left_out = len(all_of_them) - most + 1
    yield all_of_them[0]
    yield "...", f"{left_out:,} more; --json has all"
    yield from all_of_them[1 + left_out :]


def _times(times: Mapping[str, str | None], names: Mapping[str, str]) -> str:
    """Returns the time of the request, and the seconds after it of the other events."""
    requested_at = datetime.fromisoformat(str(times["requested_at"]))
    later = [
        f"{name} {(datetime.fromisoformat(time) - requested_at).total_seconds():+.1f} s"
        for key, name in names.items()
        if (time := times[key]) is not None
    ]
    return ", ".join([f"requested {requested_at:%Y-%m-%d} {clock(requested_at)}", *later])


def _frame(frame: Mapping[str, Any]) -> str:
    of = frame["tool_call_id"] or ""
    words = f"{frame_type(frame['type'])} {short_id(of)}".rstrip()
    return f"version {frame['version']}, {words}, {clock(datetime.fromisoformat(frame['logged_at']))}"


def _by(cause: Mapping[str, Any]) -> str:
    return ", ".join(filter(None, (frame_type(cause["type"]), cause["source"])))


def _range(of: Mapping[str, Any]) -> str:
    return f"version {of['from']}" if of["from"] == of["to"] else f"versions {of['from']} to {of['to']}"
