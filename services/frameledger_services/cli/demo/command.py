"""`frameledger demo`: a scripted conversation on real servers, shown as SQL rows while it grows."""

from __future__ import annotations

import asyncio
import os
import secrets
import shlex
import sys
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar
from urllib.parse import quote

import psycopg
import typer
from psycopg import AsyncConnection
from rich.console import Console
from rich.text import Text

from frameledger.errors import FrameledgerError
from frameledger.ids import ContextId
from frameledger_services import process
from frameledger_services.cli.demo import closing, render
from frameledger_services.cli.terminal import backend, output
from frameledger_services.cli.up import imports
from frameledger_services.cli.up.command import SERVICES as SERVICES_OF_UP
from frameledger_services.cli.up.command import DataDir, setup
from frameledger_services.cli.up.render import page_of
from frameledger_services.client import Client
from frameledger_services.demo import forgetting, playing, proof, recording
from frameledger_services.demo.harbour import FILE, Harbour
from frameledger_services.demo.playing import Played
from frameledger_services.demo.recording import Stage
from frameledger_services.demo.times import Times
from frameledger_services.settings import GATEWAY_PORT, PREFIX, Settings
from frameledger_services.store.connections import connect
from frameledger_services.store.offers import tools_on_offer
from frameledger_services.telemetry import provider as traces

# The embedded servers are imported inside the command: they need Linux or macOS, and the command line runs anywhere.
if TYPE_CHECKING:
    from frameledger_services.demo.servers import Servers
    from frameledger_services.embedded.forked import ForkServer
    from frameledger_services.embedded.record import Process

_T = TypeVar("_T")

TOOLS = "frameledger_services.demo.tools"

STARTED = (*(words[-1] for words in SERVICES_OF_UP), "inference", "functions")
"""The services that the demo starts."""

commands = typer.Typer()


@dataclass(frozen=True, slots=True)
class _Demo:
    """One demo. Its services have unique names, so that they serve only its conversations."""

    settings: Settings
    provider: str
    wanted_model: str | None
    speed: float
    name: str

    @property
    def context_id(self) -> ContextId:
        return ContextId(f"demo-{self.name}")

    @property
    def second_id(self) -> ContextId:
        """The conversation that is erased."""
        return ContextId(f"{self.context_id}-forgotten")

    @property
    def model(self) -> str:
        """The name of the real model, or a unique name for the scripted one, which accepts any."""
        if self.wanted_model is not None:
            return self.wanted_model
        return (
            f"night-owl-{self.name}"
            if self.provider == "scripted"
            else _default_model(self.settings, self.provider)
        )

    @property
    def workers(self) -> dict[str, tuple[str, ...]]:
        """The commands of the inference and function services, by name."""
        inference, functions = f"{self.context_id}.inference", f"{self.context_id}.functions"
        script = ("--script", str(recording.SCRIPT)) if self.provider == "scripted" else ()
        model = ("--model", self.model, "--models", self.model)
        return {
            inference: (
                *("run", "inference", "--service", inference),
                *("--provider", self.provider, *model, *script),
            ),
            functions: ("run", "functions", "--service", functions, "--module", TOOLS),
        }


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
    with backend.exit_on_error():
        settings = Settings.from_env(look_for_running=False)
    if data_dir is not None:
        settings = settings.model_copy(update={"data_dir": data_dir})
    _check_key(settings, provider)
    this = _Demo(settings, provider, model, speed, secrets.token_hex(3))
    logs = settings.data_dir / "logs"
    try:
        with forking(imports.of(STARTED)) as fork_server, traces.recording("cli"):
            right = asyncio.run(_until_signal(_demo(this, console, times, fork_server)))
    except asyncio.CancelledError:
        output.fail(
            "Stopped before its end. Everything that it started was stopped.", f"Time spent: {times}."
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


def _default_model(settings: Settings, provider: str) -> str:
    from frameledger_services.providers import plugins

    found = plugins.create(provider, plugins.unspoken(settings)).default_model
    return found or output.fail(f"The provider {provider} has no default model.", "Choose one with --model.")


async def _demo(this: _Demo, console: Console, times: Times, fork_server: ForkServer | None) -> bool:
    """Run the whole demo. Returns whether the proof succeeded."""
    from frameledger_services.demo.servers import answering, servers
    from frameledger_services.embedded.stack import Command

    if not console.is_terminal:
        console.print("Starting the servers ...")
    async with AsyncExitStack() as running:
        with console.status("Starting the servers ...") as status, times.of("servers"):

            def show(processes: Sequence[Process]) -> None:
                status.update(Text(render.starting(processes)))

            used = await running.enter_async_context(
                servers(
                    this.settings,
                    setup=setup(),
                    services=[Command(words[-1], words) for words in SERVICES_OF_UP],
                    on_change=show,
                    fork_server=fork_server,
                )
            )
            harbour = Harbour(used.settings.data_dir.resolve() / FILE)
            harbour.prepare()
            connection = await running.enter_async_context(await connect(used.settings))
            kill = await running.enter_async_context(
                answering(used, this.workers, connection, show, fork_server)
            )
        played, right = await _shown(this, used, connection, harbour, kill, console, times)
        with console.status("Stopping the servers ..."), times.of("stopping"):
            await running.aclose()
    _print_next(console, this, used, played)
    return right


async def _shown(
    this: _Demo,
    used: Servers,
    connection: AsyncConnection[Any],
    harbour: Harbour,
    kill: Callable[[str], int],
    console: Console,
    times: Times,
) -> tuple[Played, bool]:
    """Play the conversation, query its history, and prove the result."""
    since = f"started in {times['servers']:.1f} s" if used.ours else "of the running `frameledger up`"
    console.print(f"{render.addresses(used.record)}: {since}", style="dim", markup=False)
    who = "A scripted model answers" if this.provider == "scripted" else f"{this.model} answers"
    console.print(
        Text.assemble(
            "A phone call. ", who, ", with real functions. SQL rows of ", (this.context_id, "bold"), ":"
        )
    )
    console.print(render.LEGEND, style="dim")
    console.print()
    functions = next(service for service in this.workers if service.endswith(".functions"))
    stage = Stage(this.model, await tools_on_offer(connection, [functions]))
    async with Client(used.settings) as client:
        lines = recording.lines()
        with times.of("conversation"), render.Conversation(console, len(lines)) as page:

            def have_an_accident() -> None:
                lease = f"{used.settings.work_lease_secs:g} s"
                page.note(f"kill -9 {kill(functions)}")
                page.note(
                    "The worker is killed during order_breakfast, just after it wrote the order. After "
                    f"{lease} without a heartbeat another worker takes over."
                )

            played = await playing.play(
                used.settings,
                client,
                connection,
                this.context_id,
                lines,
                stage,
                harbour,
                speed=this.speed,
                show=page.show,
                kill=have_an_accident,
            )
    await closing.look_back(console, connection, this.context_id, played)
    with times.of("proof"):
        found = await proof.proved(connection, this.context_id, played, harbour)
        async with Client(used.settings) as client:
            forgotten = await forgetting.forget(client, this.second_id, stage)
    closing.print_verdict(console, played, found)
    closing.print_forgotten(console, forgotten)
    return played, found.right and forgotten.right


def _print_next(console: Console, this: _Demo, used: Servers, played: Played) -> None:
    from frameledger_services.embedded.record import read_record

    program = _program()
    console.print()
    settings = this.settings
    if used.ours and settings.database_url is None:
        console.print(
            f"Everything was stopped; the data is kept in {settings.data_dir}. To inspect it:",
            markup=False,
        )
        if settings.data_dir != Settings().data_dir and not os.environ.get(f"{PREFIX}DATA_DIR"):
            console.print(f"  export {PREFIX}DATA_DIR={shlex.quote(str(settings.data_dir))}", markup=False)
        console.print(f"  {program} up --detach", style="bold", markup=False)
        page: str | None = f"http://127.0.0.1:{GATEWAY_PORT}/"
        unless = ", unless `up` prints another address"
    else:
        console.print("To inspect it:")
        record = read_record(settings.data_dir.resolve())
        page, unless = None if record is None else page_of(record), ""
    if page is not None:
        address = f"{page}c/{quote(this.context_id, safe='')}"
        console.print(f"  {address} in a browser{unless}", soft_wrap=True, markup=False)
    console.print(f"  {program} sql", style="bold", markup=False)
    for sql in closing.to_try(this.context_id, played):
        closing.print_sql(console, sql)


def _program() -> str:
    """Returns this command line as the user would type it."""
    path = Path(sys.argv[0])
    return str(path) if path.name == "frameledger" and not path.is_absolute() else "frameledger"


async def _until_signal(work: Coroutine[Any, Any, _T]) -> _T:
    """Await `work`. The first Ctrl-C, SIGTERM or SIGHUP cancels it; later ones are ignored while it stops."""
    process.cancel_on_signals()
    return await work
