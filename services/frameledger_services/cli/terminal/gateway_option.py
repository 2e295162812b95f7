"""The option `--url`: use a gateway over HTTP instead of Kafka and PostgreSQL."""

from __future__ import annotations

from typing import Annotated

import typer

from frameledger_services.client import Client, Conversations
from frameledger_services.settings import Settings

Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        help="Gateway to use instead of Kafka and PostgreSQL, with the token in FRAMELEDGER_TOKEN. Default: "
        "FRAMELEDGER_URL. Empty: no gateway.",
        show_default=False,
    ),
]


def address(settings: Settings, url: Url) -> str | None:
    """Returns the address of the gateway to use, or None for Kafka and PostgreSQL."""
    return (settings.url if url is None else url) or None


def conversations(settings: Settings, url: str | None, source: str) -> Conversations:
    """Returns a client of this gateway, or of Kafka and PostgreSQL if `url` is None. Raises `MissingExtraError`."""
    if url is None:
        return Client(settings, source=source)
    # Imported here: aiohttp takes a fifth of a second to import and is an extra.
    from frameledger_services.client import HttpClient

    return HttpClient(url, settings=settings)
