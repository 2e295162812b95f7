"""`frameledger diff`: changes of a context between two versions or times."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from frameledger.tools import tool_names
from frameledger_services.cli.terminal import (
    backend,
    escape,
    format_message,
    moment,
    options,
    output,
    pager,
    render_context,
    text_diff,
)
from frameledger_services.cli.terminal.pager import Page, Piece
from frameledger_services.database_types import Connection
from frameledger_services.settings import Settings
from frameledger_services.store import history
from frameledger_services.store.moments import Moment

_WHO = 14

commands = typer.Typer()


@dataclass(frozen=True, slots=True)
class _Row:
    """A line of a difference before wrapping: sign, position of the message, speaker, and text."""

    sign: str
    position: str
    who: str
    text: list[Piece]


@commands.command()
def diff(
    context: options.Context,
    a: Annotated[
        str,
        typer.Argument(
            metavar="A",
            callback=moment.checked,
            help="From this version (12) or ISO 8601 time (2026-05-01T12:00:00Z).",
        ),
    ],
    b: Annotated[
        str | None,
        typer.Argument(
            metavar="B",
            callback=moment.checked,
            help="To this version or time. Default: the newest version.",
            show_default=False,
        ),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Show what changed in a context between two versions: messages, tools and settings.

    Messages have the positions that `show` prints: + added, - removed, ~ changed, with the changed words marked. The
    SQL function `context_diff` returns the same.

    Example: `frameledger diff ctx-1 11 12`
    """
    first, last = moment.parse(a), None if b is None else moment.parse(b)
    with backend.exit_on_error():
        settings = Settings.from_env()
        before, after, difference = asyncio.run(backend.query(settings, _read, context, first, last))
    if as_json:
        typer.echo(json.dumps({"context_id": before.context_id} | difference))
        return
    with pager.page(settings.pager) as page:
        render(page, before, after, difference)


async def _read(
    connection: Connection, context: str, a: moment.At, b: moment.At | None
) -> tuple[Moment, Moment, dict[str, Any]]:
    before, after = await moment.find(connection, context, a), await moment.find(connection, context, b)
    difference = await history.difference(connection, context, before.version, after.version)
    if difference is None:
        output.fail(
            f"A version of {context!r} between {before.version} and {after.version} was erased.",
            "`frameledger timeline` shows the remaining versions.",
        )
    return before, after, difference


def render(page: Page, before: Moment, after: Moment, difference: Mapping[str, Any]) -> None:
    """Print the result of `context_diff`."""
    page.whole(
        f"{escape.printable(before.context_id)} from version {before.version} to {after.version}", "bold"
    )
    old, new = difference["eras"]
    if old != new:
        page.line((f"The history was replaced: era {old} became era {new}.", "yellow"))
    some = False
    for row in (*_messages(difference), *_terms(difference["terms"])):
        some = True
        _print(page, row)
    if not some:
        page.line(("Nothing changed.", ""))


def _messages(difference: Mapping[str, Any]) -> Iterator[_Row]:
    """Yields messages in the order of the conversation, those of the earlier era first."""
    entries = [
        (entry["era"], entry["position"], sign, entry)
        for sign, kind in (("-", "removed"), ("+", "added"), ("~", "replaced"))
        for entry in difference[kind]
    ]
    for _, position, sign, entry in sorted(entries, key=lambda one: one[:2]):
        if sign == "~":
            (who, old), (_, new) = map(format_message.speaker_and_text, (entry["before"], entry["after"]))
            yield _Row(sign, str(position), who, text_diff.changed(_clipped(old), _clipped(new)))
        else:
            who, text = format_message.speaker_and_text(entry["message"])
            yield _Row(sign, str(position), who, [(_clipped(text), "removed" if sign == "-" else "added")])


def _terms(terms: Mapping[str, Mapping[str, Any]]) -> Iterator[_Row]:
    for name, values in terms.items():
        before, after = values["before"], values["after"]
        match name:
            case "tools":
                yield from _parts("tools", _named(before), _named(after), with_values=False)
            case "settings" | "limits":
                yield from _parts(name, before, after, with_values=True)
            case _:
                # Null means unset.
                old, new = ({} if value is None else {"": value} for value in (before, after))
                yield from _parts(name.replace("_", " "), old, new, with_values=True)


def _named(tools: Sequence[Any]) -> dict[str, Any]:
    """Returns each definition by its name: the names of its functions, or its JSON if it has none. Further ones of the
    same name are numbered."""
    named: dict[str, Any] = {}
    seen: Counter[str] = Counter()
    for tool in tools:
        name = ", ".join(tool_names([tool])) or _json(tool)
        seen[name] += 1
        named[name if seen[name] == 1 else f"{name} ({seen[name]})"] = tool
    return named


def _parts(name: str, old: Mapping[str, Any], new: Mapping[str, Any], *, with_values: bool) -> Iterator[_Row]:
    """Yields a line for each part that differs, with its values if `with_values` is set."""
    for part in sorted(old.keys() | new.keys()):
        if part in old and part in new and old[part] == new[part]:
            continue
        sign = "+" if part not in old else "-" if part not in new else "~"
        pieces: list[Piece] = [(f"{part} " if part else "", "")]
        if with_values:
            pieces += [(_json(old[part]), "removed")] if part in old else []
            pieces += [(" ", "")] if part in old and part in new else []
            pieces += [(_json(new[part]), "added")] if part in new else []
        yield _Row(sign, "", name, pieces)


def _print(page: Page, row: _Row) -> None:
    color = {"+": "green", "-": "red", "~": "yellow"}[row.sign]
    pieces: list[Piece] = [(render_context.plain(text), style) for text, style in row.text]
    # The signs + and - already mark the whole message.
    if not page.in_color and row.sign == "~":
        pieces = list(text_diff.marked(pieces))
    head: list[Piece] = [
        (f"{row.sign} {row.position:>4}  ", color),
        (f"{pager.padded(escape.one_line(row.who), _WHO)}  ", "cyan"),
    ]
    indent = sum(len(text) for text, _ in head)
    for line in text_diff.lines(pieces, max(page.width - indent, 20)):
        page.line(*head, *line)
        head = [(" " * indent, "")]


def _clipped(text: str) -> str:
    return (
        text
        if len(text) <= _MAX_CHARACTERS
        else f"{text[:_MAX_CHARACTERS]}... ({len(text) - _MAX_CHARACTERS:,} characters more)"
    )


_MAX_CHARACTERS = 10_000
"""Maximum characters of a message that are compared and shown."""


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
