"""`frameledger rerun`: what another model, or another prompt, says to a recorded moment; or to many."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from psycopg import AsyncConnection

from frameledger_services.cli.rerun import render, report, to_json
from frameledger_services.cli.terminal import backend, moment, options, output
from frameledger_services.client import Client
from frameledger_services.forks import batch, prices
from frameledger_services.forks.compared import Compared, compared
from frameledger_services.forks.original import Original, original
from frameledger_services.forks.rerun import Changes, Rerunner
from frameledger_services.forks.summary import Summary
from frameledger_services.providers import plugins
from frameledger_services.providers.out_of_band import OutOfBand
from frameledger_services.settings import Settings
from frameledger_services.store import reruns
from frameledger_services.store.connections import Connections

SOURCE = "frameledger/rerun"

commands = typer.Typer()


@commands.command()
def rerun(
    context: Annotated[
        str | None,
        typer.Argument(
            metavar="CONTEXT", callback=options.context_id, help="The conversation.", show_default=False
        ),
    ] = None,
    at: Annotated[
        moment.At | None,
        typer.Option(
            parser=moment.parse,
            metavar="VERSION|TIME",
            help="The moment to ask about, as of `show`. Not given: what the newest run read.",
            show_default=False,
        ),
    ] = None,
    provider: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Who answers. Not given: as it is set, else who did.", show_default=False
        ),
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="The model, whatever was used.", show_default=False)
    ] = None,
    system: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="A system instruction instead of every other.", show_default=False),
    ] = None,
    times: Annotated[int, typer.Option(min=1, metavar="N", help="Ask so many times.")] = 1,
    price_list: Annotated[
        Path | None,
        typer.Option(
            "--prices",
            metavar="FILE",
            help='Prices of a million tokens, TOML or JSON: {"gpt-5-mini": {"input": 0.25, "output": 2, "cache_read": '
            '0.025, "cache_write": 0.25}}.',
            show_default=False,
        ),
    ] = None,
    all_runs: Annotated[
        bool, typer.Option("--all-runs", help="Every run that came to its end, and what it sums up to.")
    ] = False,
    contexts: Annotated[
        list[str] | None,
        typer.Option(
            "--context",
            metavar="CONTEXT",
            callback=options.context_ids,
            help="With --all-runs: a further conversation. Repeatable.",
            show_default=False,
        ),
    ] = None,
    since: Annotated[
        moment.At | None,
        typer.Option(
            parser=moment.parse,
            metavar="TIME",
            help="With --all-runs: all conversations with a frame since then.",
            show_default=False,
        ),
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, metavar="N", help="With --all-runs: so many at once.")] = 4,
    report_to: Annotated[
        Path | None,
        typer.Option(
            "--report",
            metavar="FILE",
            help="With --all-runs: the JSON file. Not given: rerun-TIME.json here.",
            show_default=False,
        ),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="End with exit code 1 unless everything is the same.")
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Ask a recorded moment again, of another model or with another prompt, and compare the answers.

    The version is one that a run read; not given, the newest of these. The answer is held by an experiment, a
    conversation that lists leave out, and no function is run: a call gets the recorded result of an equal one, once
    each, and any other is answered "not available in a rerun" and listed. The provider is asked, and paid, really.

    Example: `frameledger rerun ctx-1 --at 12 --provider anthropic --times 3 --prices prices.toml`
    """
    if all_runs:
        if at is not None:
            raise typer.BadParameter("with --all-runs there is no one version", param_hint="--at")
        if since is not None and since.time is None:
            raise typer.BadParameter("a time such as 2026-05-01", param_hint="--since")
        if context is None and not contexts and since is None:
            raise typer.BadParameter(
                "of which conversations? Name some, or say --since", param_hint="--all-runs"
            )
    elif contexts or since is not None or report_to is not None:
        raise typer.BadParameter("these go with --all-runs", param_hint="--context, --since, --report")
    elif context is None:
        raise typer.BadParameter("which conversation?", param_hint="CONTEXT")
    with backend.exit_on_error():
        settings = Settings.from_env()
        named = provider or settings.inference_provider
        if named:
            plugins.require_key(named, settings)
        paid = None if price_list is None else prices.read(price_list)
        asked = Asked(settings, named, Changes(model, system), times, paid)
        if all_runs:
            names = [*dict.fromkeys([*([context] if context else []), *(contexts or [])])]
            same = asyncio.run(_all(asked, names, since, jobs, report_to or report.default_path(), as_json))
        else:
            assert context is not None
            same = asyncio.run(_one(asked, context, at, as_json))
    if check and not same:
        raise typer.Exit(1)


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked for."""

    settings: Settings
    provider: str | None
    changes: Changes
    times: int
    prices: prices.Prices | None


async def _one(asked: Asked, context_id: str, at: moment.At | None, as_json: bool) -> bool:
    async with _reruns(asked) as desk:
        version = await desk.connections.read(_version, context_id, at)
        found = await desk.rerun(batch.RunAt(context_id, version))
    if as_json:
        typer.echo(json.dumps(to_json.compared(found), ensure_ascii=False))
    else:
        render.show(found, output.console())
    return found.same


async def _all(
    asked: Asked,
    context_ids: Sequence[str],
    since: moment.At | None,
    jobs: int,
    path: Path,
    as_json: bool,
) -> bool:
    found, console = Summary(), output.console()
    try:
        with report.writing(path) as written:

            def tell(one: Compared) -> None:
                found.add(one)
                said = to_json.compared(one)
                written.add(said)
                if as_json:
                    typer.echo(json.dumps(said, ensure_ascii=False))
                else:
                    console.print(render.line(one))

            async with _reruns(asked) as desk:
                runs = batch.answered_runs(
                    desk.connections, context_ids, None if since is None else since.time
                )
                await batch.in_order(runs, desk.rerun, tell, jobs)
            written.end(found)
    except OSError as error:
        output.fail(
            f"The report {path} cannot be written: {error.strerror}.", "Name another file with --report."
        )
    if as_json:
        typer.echo(json.dumps({"summary": found.to_json(), "report": str(path)}))
    elif not found.reruns:
        typer.echo("No run there came to its end, so nothing was asked.")
    else:
        console.print()
        render.summary(found, console)
        console.print(f"\nAll of it: {path}", soft_wrap=True)
    return found.same == found.reruns


class _Desk:
    """What reruns need while they go on: a client, connections, and each provider that is asked."""

    def __init__(self, asked: Asked, client: Client, connections: Connections, stack: AsyncExitStack) -> None:
        self.connections = connections
        self._asked = asked
        self._client = client
        self._stack = stack
        self._rerunners: dict[str | None, Rerunner] = {}

    async def rerun(self, run: batch.RunAt) -> Compared:
        """Ask about one moment, as often as was wanted."""
        found = await self.connections.read(original, run.context_id, run.version)
        rerunner = self._rerunner(found)
        answers = [await rerunner.rerun(found) for _ in range(self._asked.times)]
        return compared(found, answers, self._asked.prices)

    def _rerunner(self, found: Original) -> Rerunner:
        name = self._asked.provider or (found.answer.provider if found.answer else None)
        if name not in self._rerunners:
            if name is not None:
                plugins.require_key(name, self._asked.settings)
            model = OutOfBand(self._asked.settings, provider=name)
            self._stack.push_async_callback(model.close)
            self._rerunners[name] = Rerunner(model, self._asked.changes, self._publish, time.monotonic)
        return self._rerunners[name]

    async def _publish(self, context_id: str, frames: Sequence[Any], cause: str | None) -> None:
        await self._client.publish(context_id, *frames, causation_id=cause)


@asynccontextmanager
async def _reruns(asked: Asked) -> AsyncIterator[_Desk]:
    async with AsyncExitStack() as stack:
        connections = Connections(asked.settings)
        stack.push_async_callback(connections.close)
        client = await stack.enter_async_context(Client(asked.settings, source=SOURCE))
        yield _Desk(asked, client, connections, stack)


async def _version(connection: AsyncConnection[Any], context_id: str, at: moment.At | None) -> int:
    found = await moment.find(connection, context_id, at)
    if at is not None:
        return found.version
    newest = await reruns.run_versions(connection, context_id)
    if not newest:
        output.fail(
            f"No run of {context_id!r} has begun, so nothing was answered yet.",
            "Say --at, and what a model says there is shown.",
        )
    return newest[0]
