"""`frameledger run`: one service in this process, until it is told to stop."""

from __future__ import annotations

import typer

from frameledger_services import life
from frameledger_services.cli import failures

commands = typer.Typer(no_args_is_help=True, help="Run one service in this process, until SIGTERM or Ctrl-C.")


@commands.command()
def projector() -> None:
    """Fold what is published into Postgres, each frame once.

    Run as many as there is work for: they share the partitions. `frameledger up` runs one.

    Example: `frameledger run projector`
    """
    from frameledger_services.projector import service

    with failures.said():
        settings = failures.settings()
        life.live(lambda stopping: service.serve(settings, stopping))
