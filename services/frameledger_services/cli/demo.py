"""`frameledger demo`: a recorded conversation on the real servers, watched in SQL while it happens."""

from __future__ import annotations

import asyncio
import os
import secrets
import shlex
import statistics
import sys
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import psycopg
import typer
from psycopg import AsyncConnection
from rich.console import Console
from rich.text import Text

from frameledger.ids import ContextId
from frameledger_services import life
from frameledger_services.cli import demo_page, failures, output
from frameledger_services.cli.up import SERVICES, SETUP, DataDir
from frameledger_services.client import Client
from frameledger_services.client.connections import connect
from frameledger_services.demo import playing, proof, recording
from frameledger_services.demo.playing import Played
from frameledger_services.demo.times import Times
from frameledger_services.settings import PREFIX, Settings, load

# The embedded servers are for Linux and macOS and imported inside the command: the command line is for all.
if TYPE_CHECKING:
    from frameledger_services.demo.servers import Servers

_T = TypeVar("_T")

commands = typer.Typer()


@commands.command()
def demo(
    data_dir: DataDir = None,
    speed: Annotated[
        float, typer.Option(min=0.1, max=1000, metavar="N", help="So many times as fast as it was recorded.")
    ] = 1.0,
) -> None:
    """Play a recorded conversation onto real servers, and show in SQL what becomes of it.

    Starts Kafka, PostgreSQL and a projector, or uses those of a running `frameledger up`, and publishes two hundred
    frames into a new context as they happened. Ends with exit code 0 only if `context_at` gives, at every version,
    what the frames fold to. What it started is stopped at the end; the data stays.

    Example: `frameledger demo --speed 3`
    """
    from frameledger_services.embedded.program import EmbeddedError

    times, console = Times(), output.console()
    expected = (*failures.EXPECTED, EmbeddedError, playing.NotSeenError, psycopg.Error)
    with failures.said():
        settings = load(os.environ, look_for_running=False).settings
    if data_dir is not None:
        settings = settings.model_copy(update={"data_dir": data_dir})
    logs = settings.data_dir / "logs"
    try:
        right = asyncio.run(_until_signal(_demo(settings, speed, console, times)))
    except asyncio.CancelledError:
        output.refuse(
            "Stopped before its end; nothing that it started runs any more.", f"Where the time went: {times}."
        )
    except (*expected, ExceptionGroup) as error:
        output.refuse(str(_first(error, expected)), f"Where the time went: {times}. Logs are in {logs}.")
    if not right:
        output.refuse(
            "SQL does not say what the frames fold to.", f"Where the time went: {times}. Logs are in {logs}."
        )


async def _demo(settings: Settings, speed: float, console: Console, times: Times) -> bool:
    """The whole demo; whether SQL was right."""
    from frameledger_services.demo.servers import servers
    from frameledger_services.embedded.stack import Command

    context_id = ContextId(f"demo-{secrets.token_hex(3)}")
    if not console.is_terminal:
        console.print("Starting the servers ...")
    async with AsyncExitStack() as running:
        with console.status("Starting the servers ...") as status, times.of("servers"):
            used = await running.enter_async_context(
                servers(
                    settings,
                    setup=[Command(words[0], words) for words in SETUP],
                    services=[Command(words[-1], words) for words in SERVICES],
                    on_change=lambda record: status.update(Text(demo_page.starting(record))),
                )
            )
        played, right = await _shown(used, context_id, speed, console, times)
        with console.status("Stopping the servers ..."), times.of("stopping"):
            await running.aclose()
    _print_next(console, settings, used, context_id, played)
    return right


async def _shown(
    used: Servers, context_id: ContextId, speed: float, console: Console, times: Times
) -> tuple[Played, bool]:
    """Play the conversation, look back in it, and compare it with its fold; whether they are equal."""
    cues = recording.cues(context_id)
    since = f"started in {times['servers']:.1f} s" if used.ours else "of the running `frameledger up`"
    console.print(f"{demo_page.addresses(used.record)}: {since}", style="dim", markup=False)
    console.print(
        Text.assemble(
            f"A phone call, recorded in {len(cues)} frames, goes to Kafka as it happened. What SQL has of ",
            (context_id, "bold"),
            ":",
        )
    )
    console.print()
    async with Client(used.settings) as client, await connect(used.settings) as connection:
        with times.of("conversation"), demo_page.Conversation(console, len(cues)) as page:
            played = await playing.play(client, connection, context_id, cues, speed=speed, show=page.show)
        await _look_back(console, connection, context_id, played)
        with times.of("comparison"):
            stored = [seen.frame for seen in played.seen]
            found = await proof.differences(connection, context_id, played.published, stored)
    _print_verdict(console, played, found)
    return played, not found


async def _look_back(
    console: Console, connection: AsyncConnection[Any], context_id: ContextId, played: Played
) -> None:
    cut = next(one.frame.version for one in played.seen if _is(one, "InterruptionFrame") and one.written)
    new = next(one.frame.version for one in played.seen if _is(one, "LLMMessagesUpdateFrame"))
    for title, sql in (
        (
            "Time travel: the context as it was just before the passenger cut in",
            f"SELECT context_at('{context_id}', {cut - 1});",
        ),
        ("What cutting in did to it", f"SELECT context_diff('{context_id}', {cut - 1}, {cut});"),
        (
            "The end of the history that the summary replaced: nothing is lost",
            f"SELECT position, role, text FROM messages_at('{context_id}', {new - 1}) ORDER BY position DESC LIMIT 3;",
        ),
    ):
        console.print()
        console.print(title, style="bold")
        _print_sql(console, sql)
        # What is executed is the text that is shown.
        cursor = await connection.execute(sql.encode())
        names = [column.name for column in cursor.description or ()]
        console.print(demo_page.answer(names, await cursor.fetchall(), console.width))


def _print_verdict(console: Console, played: Played, found: list[proof.Difference]) -> None:
    console.print()
    for one in found[:5]:
        console.print(f"Version {one.version}, {one.about}", style="bold red")
        console.print(f"  SQL   {one.stored}\n  fold  {one.folded}", markup=False)
    if found:
        console.print(f"{len(found)} differences between SQL and the fold", style="bold red")
        return
    delays = [1000 * one.delay for one in played.seen]
    console.print(
        Text.assemble(
            ("Right. ", "bold green"),
            f"At each of {len(played.seen) + 1} versions context_at() gives what the frames fold to.",
        )
    )
    console.print(
        f"{len(played.published)} frames were published, and the one that came twice is stored once. From the "
        f"producer to SQL a frame took {statistics.median(delays):.0f} ms in the median, and 19 of 20 took "
        f"{statistics.quantiles(delays, n=20)[-1]:.0f} ms at most.",
        style="dim",
    )


def _print_next(
    console: Console, settings: Settings, used: Servers, context_id: ContextId, played: Played
) -> None:
    program = _program()
    middle = played.seen[len(played.seen) // 2].frame.logged_at
    console.print()
    if used.ours and settings.database_url is None:
        console.print(
            f"Nothing runs any more, and the data stays in {settings.data_dir}. To look around in it:",
            markup=False,
        )
        if settings.data_dir != Settings().data_dir and not os.environ.get(f"{PREFIX}DATA_DIR"):
            console.print(f"  export {PREFIX}DATA_DIR={shlex.quote(str(settings.data_dir))}", markup=False)
        console.print(f"  {program} up --detach", style="bold", markup=False)
    else:
        console.print("To look around:")
    console.print(f"  {program} sql", style="bold", markup=False)
    where = f"WHERE context_id = '{context_id}'"
    for sql in (
        f"SELECT * FROM transcript {where};",
        f"SELECT * FROM timeline {where};",
        f"SELECT * FROM turns {where};",
        f"SELECT version, type, reason FROM frames {where} AND outcome <> 'applied';",
        f"SELECT context_at_time('{context_id}', '{middle:%Y-%m-%d %H:%M:%S%z}');",
    ):
        _print_sql(console, sql)


def _print_sql(console: Console, sql: str) -> None:
    """As a person would type it; never broken, since it is there to be copied."""
    console.print(f"  {sql}", style="cyan", soft_wrap=True, markup=False)


def _is(seen: playing.Seen, frame_type: str) -> bool:
    return seen.frame.type == frame_type


def _program() -> str:
    """This command line as a person here would call it."""
    path = Path(sys.argv[0])
    return str(path) if path.name == "frameledger" and not path.is_absolute() else "frameledger"


async def _until_signal(work: Coroutine[Any, Any, _T]) -> _T:
    """Do the work; the first Ctrl-C, SIGTERM or SIGHUP cancels it, a second one does not disturb its stopping."""
    life.cancel_on_signals()
    return await work


def _first(error: Exception, expected: tuple[type[Exception], ...]) -> Exception:
    """The failure in a group of failures that are no bugs; raises the group if there is one among them."""
    if not isinstance(error, ExceptionGroup):
        return error
    _, bugs = error.split(expected)
    if bugs is not None:
        raise error
    first: Exception = error
    while isinstance(first, ExceptionGroup):
        first = first.exceptions[0]
    return first
