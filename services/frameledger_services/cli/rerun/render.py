"""A rerun beside its original as text. Words that differ are marked like in `git diff --word-diff`."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from rich.console import Console
from rich.table import Table
from rich.text import Text

from frameledger_services.cli.terminal import escape
from frameledger_services.cli.terminal.format_message import plain
from frameledger_services.forks.answer import AnswerCall, ModelAnswer
from frameledger_services.forks.compared import ComparedAnswers
from frameledger_services.forks.comparison import AnswerComparison, TextPiece
from frameledger_services.forks.summary import Side, Summary

_MARKS = {"same": ("", "", ""), "gone": ("[-", "-]", "red"), "new": ("{+", "+}", "green")}


def show(answers: ComparedAnswers, console: Console) -> None:
    """Print a version and its reruns, each beside the recorded answer."""
    console.print(Text(f"{escape.printable(answers.context_id)} at version {answers.version}", "bold"))
    for number, (rerun, comparison) in enumerate(answers.reruns, start=1):
        console.print()
        console.print(_side_by_side(answers.recorded, rerun, comparison, number))
        for call in rerun.calls:
            if call.answered == "not available":
                console.print(Text(f"No recorded result for the call: {_call(call)}", "yellow"))
        if rerun.error is not None:
            console.print(Text(f"The provider failed: {escape.one_line(rerun.error)}", "red"))
    _say_unpriced(answers.unpriced, console)
    if answers.recorded is None:
        console.print("\nNo run read this version, so there is nothing to compare with.")
    elif len(answers.reruns) > 1:
        same = sum(comparison is not None and comparison.same for _, comparison in answers.reruns)
        console.print(f"\n{same} of {len(answers.reruns)} reruns equal the recorded answer.")


def line(answers: ComparedAnswers) -> Text:
    """Returns a run and its reruns on one line."""
    differing = [comparison for _, comparison in answers.reruns if comparison is not None]
    failed = len(answers.reruns) - len(differing)
    words = {
        "text differs": sum(not comparison.same_text for comparison in differing),
        "calls differ": sum(not comparison.same_calls for comparison in differing),
        "failed": failed,
    }
    differences = ", ".join(
        name if len(answers.reruns) == 1 else f"{name} {count}×" for name, count in words.items() if count
    )
    text = Text(f"{escape.printable(answers.context_id)} at version {answers.version}: ")
    return text.append(differences or "the same", "yellow" if differences else "green")


def summary(totals: Summary, console: Console) -> None:
    """Print the summary of many reruns."""
    counts = Table(box=None, pad_edge=False)
    for heading in (
        "reruns",
        "the same",
        "text differs",
        "calls differ",
        "failed",
        "calls not on record",
    ):
        counts.add_column(heading, justify="right")
    counts.add_row(
        *(f"{count:,}" for count in (totals.reruns, totals.same, totals.text_differs, totals.calls_differ)),
        f"{totals.failed:,}",
        f"{totals.calls_not_available:,}",
    )
    console.print(counts)
    console.print()
    used = Table(box=None, pad_edge=False)
    for heading in ("", "input tokens", "output tokens", "seconds", "price"):
        used.add_column(heading, justify="right" if heading else "left")
    used.add_row("recorded", *_used(totals.recorded))
    used.add_row("rerun", *_used(totals.rerun))
    console.print(used)
    _say_unpriced(totals.unpriced, console)


def _say_unpriced(models: Collection[str], console: Console) -> None:
    if models:
        names = ", ".join(escape.one_line(model) for model in sorted(models))
        console.print(Text(f"Not in the price list: {names}", "yellow"))


def _used(side: Side) -> tuple[str, ...]:
    tokens = side.tokens
    return _count(tokens.input), _count(tokens.output), f"{side.seconds:,.1f}", _price(side.price)


def _side_by_side(
    recorded: ModelAnswer | None, rerun: ModelAnswer, comparison: AnswerComparison | None, number: int
) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), expand=True)
    table.add_column("")
    table.add_column("recorded", ratio=1, overflow="fold")
    table.add_column(f"rerun {number}", ratio=1, overflow="fold")
    old = recorded or ModelAnswer()
    table.add_row("text", _text(old, comparison, "gone"), _text(rerun, comparison, "new"))
    for ours, theirs in _pairs(old, rerun):
        table.add_row("call", ours, theirs)
    for name, ours, theirs in _figures(old, rerun):
        table.add_row(name, ours, theirs)
    table.add_row("model", _model(old), _model(rerun))
    table.add_row("kept in", escape.printable(old.run_id or ""), escape.printable(rerun.context_id or ""))
    return table


def _text(answer: ModelAnswer, comparison: AnswerComparison | None, own: str) -> Text:
    if comparison is None:
        return Text(_shown(answer.text))
    text = Text()
    for piece in comparison.text:
        if piece.kind in ("same", own):
            text.append_text(_marked(piece))
    return text


def _marked(piece: TextPiece) -> Text:
    before, after, style = _MARKS[piece.kind]
    words = piece.text.rstrip()
    return Text.assemble((f"{before}{_shown(words)}{after}", style), _shown(piece.text[len(words) :]))


def _shown(text: str) -> str:
    return "\n".join(escape.printable(line) for line in text.split("\n"))


def _pairs(old: ModelAnswer, new: ModelAnswer) -> Iterator[tuple[str, str]]:
    for place in range(max(len(old.calls), len(new.calls))):
        yield (
            _call(old.calls[place]) if place < len(old.calls) else "",
            _call(new.calls[place]) if place < len(new.calls) else "",
        )


def _call(call: AnswerCall) -> str:
    return escape.one_line(f"{call.function_name} {plain(call.arguments)}")


def _figures(old: ModelAnswer, new: ModelAnswer) -> Iterator[tuple[str, str, str]]:
    yield "tokens", _tokens(old), _tokens(new)
    yield "seconds", _seconds(old), _seconds(new)
    if old.price is not None or new.price is not None:
        yield "price", _price(old.price), _price(new.price)


def _tokens(answer: ModelAnswer) -> str:
    if answer.tokens.input is None and answer.tokens.output is None:
        return "-"
    return f"{_count(answer.tokens.input)} in, {_count(answer.tokens.output)} out"


def _seconds(answer: ModelAnswer) -> str:
    if answer.seconds is None:
        return "-"
    first = "" if answer.first_text_seconds is None else f", first text after {answer.first_text_seconds:.2f}"
    return f"{answer.seconds:.2f}{first}"


def _model(answer: ModelAnswer) -> str:
    if answer.provider is None and answer.model is None:
        return "-"
    return escape.one_line(f"{answer.provider or '-'}/{answer.model or '-'}")


def _count(count: int | None) -> str:
    return "-" if count is None else f"{count:,}"


def _price(price: float | None) -> str:
    return "-" if price is None else f"{price:,.6f}"
