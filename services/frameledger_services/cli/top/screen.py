"""The screen of `frameledger top`: one sample."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from frameledger_services.cli.terminal.escape import one_line
from frameledger_services.cli.terminal.plural import plural
from frameledger_services.cli.top.snapshot import Road, Sample, Service
from frameledger_services.store.activity import Finished, InProgress, WentWrong

_INDENT = (0, 0, 0, 2)


def page(sample: Sample, title: str) -> RenderableType:
    """Returns the whole screen. `title` names the installation."""
    head = Text.assemble((title, "bold"), f"  {sample.at.astimezone():%H:%M:%S}")
    lines = Table.grid(padding=(0, 2, 0, 0))
    lines.add_column(style="dim", no_wrap=True)
    lines.add_column(overflow="fold")
    lines.add_row("log", _road(sample.road, sample.records_per_second))
    lines.add_row("batches", _batches(sample.stages, sample.frames_of_a_batch))
    lines.add_row("last minute", _finished(sample.finished))
    lines.add_row("workers", _services(sample.services))
    return Group(
        head,
        lines,
        *_section("In progress, longest first", [_in_progress(sample.in_progress)], sample.in_progress),
        *_section("Failures of the last hour", [_went_wrong(sample.went_wrong)], sample.went_wrong),
        *_section("Problems", [_needs(sample)], sample.needs),
    )


def trouble(title: str, problem: str, remedy: str) -> RenderableType:
    """Returns the screen for an unavailable database."""
    return Group(Text(title, "bold"), Text(one_line(problem), "red"), Text(remedy, "dim"))


def _section(title: str, body: Iterable[RenderableType], rows: Sequence[object]) -> Iterable[RenderableType]:
    yield Text()
    yield Text.assemble((title, "bold"), "" if rows else ("  nothing", "dim"))
    if rows:
        yield from (Padding(one, _INDENT) for one in body)


def _road(road: Road, rate: float) -> Text:
    if not road.partitions:
        return Text("no projector has read it", "red")
    stored = Text(f"{rate:,.0f} records/s, ")
    if road.gap:
        stored.append(f"{road.gap:,} behind by {road.lag_seconds:,.1f} s", "yellow")
    else:
        stored.append("all stored")
    readers = f", {road.read} of {plural(road.partitions, 'partition')} read by {plural(road.projectors, 'projector')}"
    return stored.append(readers, "" if road.read == road.partitions else "red")


def _batches(stages: Mapping[str, float] | None, frames: float | None) -> Text:
    if stages is None:
        return Text("no projector's metrics can be read: see --metrics", "dim")
    if not stages:
        return Text("none", "dim")
    parts = " · ".join(f"{stage} {milliseconds:,.1f} ms" for stage, milliseconds in stages.items())
    return Text(parts if frames is None else f"{parts}, of {frames:,.1f} frames each")


def _finished(finished: Finished) -> Text:
    text = Text(_counted(finished.runs, "run"))
    if finished.first_text_p50 is not None and finished.first_text_p95 is not None:
        text.append(
            f", first text after {finished.first_text_p50:,.2f} s (p50), {finished.first_text_p95:,.2f} s (p95)"
        )
    text.append(f", {finished.input_tokens:,} input tokens, {finished.output_tokens:,} output tokens")
    return text.append(f"; {_counted(finished.calls, 'call')}")


def _counted(by_status: Mapping[str, int], noun: str) -> str:
    count = plural(sum(by_status.values()), noun)
    kinds = ", ".join(f"{number:,} {status}" for status, number in sorted(by_status.items()))
    return f"{count} ({kinds})" if kinds else count


def _services(services: Sequence[Service]) -> Text:
    if not services:
        return Text("none", "dim")
    return Text(
        " · ".join(
            f"{one_line(one.service)} {one.workers} ({one.busy} of {plural(one.slots, 'slot')} busy)"
            for one in services
        )
    )


def _in_progress(work: Sequence[InProgress]) -> Table:
    table = _table("", "", "", "s", "conversation", "version", "worker")
    for item in work:
        table.add_row(
            item.kind,
            one_line(item.name or ""),
            item.status,
            f"{item.seconds:,.1f}",
            one_line(item.context_id),
            str(item.version),
            one_line(item.worker or ""),
        )
    return table


def _went_wrong(failures: Sequence[WentWrong]) -> Table:
    table = _table("", "", "", "", "conversation", "version", "")
    for failure in failures:
        table.add_row(
            _time(failure.at),
            failure.kind,
            one_line(failure.name or ""),
            Text(failure.status, "red"),
            one_line(failure.context_id),
            str(failure.version),
            one_line(failure.error or ""),
        )
    return table


def _needs(sample: Sample) -> Table:
    table = _table("", "", "")
    for finding in sample.needs:
        colour = "red" if finding.state == "fail" else "yellow"
        text = Text(one_line(finding.found)).append(f"\n{one_line(finding.remedy)}", "dim")
        table.add_row(Text(finding.state, colour), finding.check, text)
    return table


def _table(*headings: str) -> Table:
    table = Table(box=None, pad_edge=False, show_header=any(headings), header_style="dim")
    for heading in headings:
        table.add_column(heading, overflow="fold", justify="right" if heading in ("s", "version") else "left")
    return table


def _time(at: datetime | None) -> str:
    return "" if at is None else f"{at.astimezone():%H:%M:%S}"
