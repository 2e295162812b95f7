"""Messages of `frameledger erase` while no projector has applied the erasure."""

from __future__ import annotations

import asyncio
from typing import NoReturn

import typer

from frameledger_services.cli.terminal import output
from frameledger_services.client import PublishedFrame

QUIET_SECONDS = 2.0
"""Seconds of waiting after which the command prints what it waits for."""


class Waiting:
    """A wait of at most `within` seconds, which begins when the erasure is on the log."""

    def __init__(self, within: float) -> None:
        self.within = within
        self._place: PublishedFrame | None = None

    def begin(self, place: PublishedFrame) -> asyncio.TimerHandle:
        """Note where the erasure is. Returns the timer of the message, which is to be cancelled at the end."""
        self._place = place
        return asyncio.get_running_loop().call_later(
            QUIET_SECONDS,
            lambda: typer.echo(
                f"The erasure is on the log ({self._where}). Waiting up to {self.within:g} s for a projector to apply "
                "it ...",
                err=True,
            ),
        )

    @property
    def _where(self) -> str:
        place = self._place
        return "" if place is None else f"{place.topic}, partition {place.partition}, offset {place.offset}"

    def give_up(self) -> NoReturn:
        """End the command with exit code 1, and say that the erasure remains to be applied."""
        output.fail(
            f"The erasure is on the log ({self._where}), but no projector applied it within {self.within:g} s.",
            "A projector applies it as soon as one runs (see `frameledger status`). Then run the same command again to "
            "print the receipt; it publishes nothing.",
        )

    def interrupt(self) -> NoReturn:
        """End the command with exit code 130 after Ctrl-C, and say whether the erasure is on the log."""
        if self._place is None:
            typer.echo(
                "Interrupted. The erasure may or may not have been published: run the command again.",
                err=True,
            )
        else:
            typer.echo(
                f"Interrupted. The erasure stays on the log ({self._where}), and the projector that reads it applies "
                "it. Run the same command again to print the receipt.",
                err=True,
            )
        raise typer.Exit(130)
