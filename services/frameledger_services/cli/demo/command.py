"""`frameledger demo`: a scripted conversation on real servers, shown as SQL rows while it grows."""

from __future__ import annotations

import asyncio
import secrets
import signal
from collections.abc import Coroutine
from typing import Annotated, Any, TypeVar

import psycopg
import typer

from frameledger.errors import FrameledgerError
from frameledger_services import process
from frameledger_services.cli.demo.performance import perform
from frameledger_services.cli.demo.plan import DemoPlan
from frameledger_services.cli.terminal import backend, output
from frameledger_services.cli.up import imports
from frameledger_services.cli.up.data_dir import DataDir, settings_of
from frameledger_services.cli.up.services import SERVICES
from frameledger_services.demo.times import Times
from frameledger_services.settings import Settings
from frameledger_services.telemetry import provider as traces

_T = TypeVar("_T")

STARTED = (*(words[-1] for words in SERVICES), "inference", "functions")
"""The services that the demo starts."""

commands = typer.Typer()


@commands.command()
def demo(
    data_dir: DataDir = None,
    provider: Annotated[
        str,
        typer.Option(
            metavar="PROVIDER",
            help="Provider: scripted, openai, anthropic, or an installed plug-in.",
        ),
    ] = "scripted",
    model: Annotated[str | None, typer.Option(metavar="MODEL", help="Model of the provider.")] = None,
    speed: Annotated[
        float, typer.Option(min=0.1, max=1000, metavar="N", help="Speed factor of the recorded people.")
    ] = 1.0,
) -> None:
    """Run a scripted voice conversation on real servers, and show the SQL rows that it produces.

    Starts Kafka, PostgreSQL and the services, or uses those of a running `frameledger up`, and its own inference and
    function services, which serve a recorded user. The worker of the functions is killed with SIGKILL during a call
    that must not be executed twice. Exit code 0 only if `context_at` equals the fold of the frames on Kafka at every
    version, nothing is left open, and the order was placed once. Everything it started is stopped at the end; the data
    is kept.

    Example: `frameledger demo --provider anthropic`
    """
    from frameledger_services.embedded.forked import forking

    times, console = Times(), output.console()
    expected = (FrameledgerError, psycopg.Error)
    settings = settings_of(data_dir, look_for_running=False)
    _check_key(settings, provider)
    plan = DemoPlan(settings, provider, model, speed, secrets.token_hex(3))
    logs = settings.data_dir / "logs"
    try:
        with forking(imports.of(STARTED)) as fork_server, traces.recording("cli"):
            right = asyncio.run(_until_signal(perform(plan, console, times, fork_server)))
    except (asyncio.CancelledError, KeyboardInterrupt) as stopped:
        output.fail(
            "Stopped before its end. Everything that it started was stopped.",
            f"Time spent: {times}.",
            code=130 if isinstance(stopped, KeyboardInterrupt) else 1,
        )
    except (*expected, ExceptionGroup) as error:
        output.fail(str(backend.expected_error(error, expected)), f"Time spent: {times}. Logs are in {logs}.")
    if not right:
        output.fail("The proof failed: see above.", f"Time spent: {times}. Logs are in {logs}.")


def _check_key(settings: Settings, provider: str) -> None:
    from frameledger_services.providers import plugins

    with backend.exit_on_error():
        try:
            plugins.require_key(provider, settings)
        except plugins.MissingKeyError as error:
            output.fail(error.problem, "Set it, or omit --provider to use a scripted model.")


async def _until_signal(work: Coroutine[Any, Any, _T]) -> _T:
    """Await `work`. The first Ctrl-C, SIGTERM or SIGHUP cancels it; later ones are ignored while it stops. Raises
    KeyboardInterrupt after Ctrl-C."""
    signals = process.cancel_on_signals()
    try:
        return await work
    except asyncio.CancelledError:
        if signal.SIGINT in signals:
            raise KeyboardInterrupt from None
        raise
