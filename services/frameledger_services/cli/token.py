"""`frameledger token`: access tokens of the gateway."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from frameledger_services.cli.terminal import backend, options, output, render_context
from frameledger_services.gateway.access import tokens
from frameledger_services.gateway.access.caller import SCOPES, Scope
from frameledger_services.gateway.access.tokens import Token
from frameledger_services.settings import Settings
from frameledger_services.settings_types import names_in

commands = typer.Typer(
    name="token", no_args_is_help=True, help="Create, list and revoke access tokens of the gateway."
)


@commands.command()
def new(
    name: Annotated[str, typer.Option(metavar="NAME", help="Name of its holder, shown in lists and logs.")],
    scope: Annotated[
        str, typer.Option(metavar="SCOPES", help="Comma-separated scopes: read, append, admin.")
    ] = "read",
    prefix: Annotated[
        str,
        typer.Option(
            metavar="TEXT", help="Restrict it to conversation ids with this prefix.", show_default=False
        ),
    ] = "",
    redact: Annotated[
        bool, typer.Option("--redact", help="Hide message text, arguments and results from it.")
    ] = False,
    days: Annotated[
        float | None,
        typer.Option(
            min=0.001,
            max=36_500,
            help="Days until it expires. Default: it does not expire.",
            show_default=False,
        ),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Create a token and print it. It is shown only once; only its hash is stored.

    Running gateways accept it from the next request on. A gateway with tokens rejects requests without one.

    Example: `frameledger token new --name ci --scope read,append --prefix acme/ --days 90`
    """
    with backend.exit_on_error():
        now = datetime.now(UTC)
        path = _path()
        try:
            token, text = tokens.create(
                path,
                name,
                _scopes(scope),
                now=now,
                prefix=prefix,
                redact=redact,
                expires_at=None if days is None else now + timedelta(days=days),
            )
        except ValueError as error:
            output.fail(f"No token was created: {error}.", "See `frameledger token new --help`.")
    if as_json:
        output.print_json_object(_as_json(token) | {"token": text})
        return
    typer.echo(text)
    typer.echo(
        f"Created {token.name} with {_rights(token)}. It is not shown again; {path} has its hash.", err=True
    )


@commands.command("list")
def list_tokens(as_json: options.AsJsonLines = False) -> None:
    """List the tokens with their scopes and expiry.

    Example: `frameledger token list`
    """
    with backend.exit_on_error():
        path = _path()
        listed = tokens.load(path) if path.exists() else ()
    if as_json:
        for token in listed:
            output.print_json_object(_as_json(token))
        return
    if not listed:
        typer.echo(f"There are no tokens in {path}.")
        return
    now = datetime.now(UTC)
    table = Table(box=None, pad_edge=False)
    for heading in ("id", "name", "scopes", "created (UTC)", "expires (UTC)"):
        table.add_column(heading, overflow="fold")
    for token in listed:
        until = "never" if token.expires_at is None else f"{token.expires_at.astimezone(UTC):%Y-%m-%d %H:%MZ}"
        table.add_row(
            token.id,
            token.name,
            render_context.text(_rights(token)),
            f"{token.created_at.astimezone(UTC):%Y-%m-%d %H:%MZ}",
            until if token.is_good_at(now) else f"{until}, expired",
        )
    output.console().print(table)


@commands.command()
def revoke(
    which: Annotated[str, typer.Argument(metavar="TOKEN", help="Name or id of the token.")],
    as_json: options.AsJson = False,
) -> None:
    """Revoke a token. Gateways reject it from the next request on, and close its live streams within seconds.

    Example: `frameledger token revoke ci`
    """
    with backend.exit_on_error():
        token = tokens.revoke(_path(), which)
    if as_json:
        output.print_json_object(_as_json(token))
    else:
        typer.echo(f"Revoked {token.name} ({token.id}).")


def _path() -> Path:
    return tokens.path_of(Settings.from_env(look_for_running=False))


def _scopes(text: str) -> set[Scope]:
    names = set(names_in(text))
    if not names:
        raise ValueError(f"no scope was given; the scopes are {', '.join(SCOPES)}")
    if wrong := sorted(names.difference(SCOPES)):
        raise ValueError(f"{wrong[0]!r} is not a scope; the scopes are {', '.join(SCOPES)}")
    return {one for one in SCOPES if one in names}


def _rights(token: Token) -> str:
    scopes = ", ".join(one for one in SCOPES if one in token.scopes)
    where = f" on {token.prefix}*" if token.prefix else ""
    return f"{scopes}{where}{', redacted' if token.redact else ''}"


def _as_json(token: Token) -> dict[str, object]:
    """Returns the token's fields without the hash."""
    return token.model_dump(mode="json", exclude={"sha256"})
