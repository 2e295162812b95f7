"""How a command reaches conversations: Kafka and PostgreSQL, or a gateway over HTTP."""

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
        help="A gateway to speak HTTP to, instead of Kafka and PostgreSQL; its token is FRAMELEDGER_TOKEN. Not given: "
        "FRAMELEDGER_URL. Empty: no gateway.",
        show_default=False,
    ),
]


def address(settings: Settings, url: Url) -> str | None:
    """Returns the address of the gateway to speak to; None for none."""
    return (settings.url if url is None else url) or None


def conversations(settings: Settings, url: str | None, source: str) -> Conversations:
    """Returns a client of this gateway; with None, of Kafka and PostgreSQL. Raises `MissingExtraError`."""
    if url is None:
        return Client(settings, source=source)
    # Imported here: httpx takes a tenth of a second, and an extra.
    from frameledger_services.client import HttpClient

    return HttpClient(url, settings=settings)
