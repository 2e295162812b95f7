"""`frameledger rerun`: recorded runs repeated with another model or prompt, and compared."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from frameledger_services.cli.rerun import report, work
from frameledger_services.cli.rerun.session import RerunOptions
from frameledger_services.cli.terminal import backend, moment, options
from frameledger_services.forks import prices
from frameledger_services.forks.rerun_model import Changes
from frameledger_services.providers import plugins
from frameledger_services.settings import Settings

commands = typer.Typer()


@commands.command()
def rerun(
    context: Annotated[
        str | None,
        typer.Argument(
            metavar="CONTEXT", callback=options.context_id, help="Id of the conversation.", show_default=False
        ),
    ] = None,
    at: Annotated[
        moment.At | None,
        typer.Option(
            parser=moment.parse,
            metavar="VERSION|TIME",
            help="Version or time of the context to ask about. Default: the version that the newest run read.",
            show_default=False,
        ),
    ] = None,
    provider: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Provider. Default: FRAMELEDGER_INFERENCE_PROVIDER, else the recorded run's.",
            show_default=False,
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Model, instead of the recorded one.", show_default=False),
    ] = None,
    system: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="System prompt, replacing all others.", show_default=False),
    ] = None,
    times: Annotated[int, typer.Option(min=1, metavar="N", help="Number of repetitions.")] = 1,
    price_list: Annotated[
        Path | None,
        typer.Option(
            "--prices",
            metavar="FILE",
            help='Prices per million tokens in TOML or JSON: {"gpt-5-mini": {"input": 0.25, "output": 2, "cache_read": '
            '0.025, "cache_write": 0.25}}.',
            show_default=False,
        ),
    ] = None,
    all_runs: Annotated[
        bool,
        typer.Option(
            "--all-runs", help="Rerun every completed run of the selected conversations, with a summary."
        ),
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
        datetime | None,
        typer.Option(
            parser=moment.parse_time,
            metavar="TIME",
            help="With --all-runs: all conversations with a frame since this time.",
            show_default=False,
        ),
    ] = None,
    jobs: Annotated[
        int, typer.Option(min=1, metavar="N", help="With --all-runs: maximum concurrent reruns.")
    ] = 4,
    report_to: Annotated[
        Path | None,
        typer.Option(
            "--report",
            metavar="FILE",
            help="With --all-runs: JSON file to write. Default: rerun-TIME.json in the current folder.",
            show_default=False,
        ),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Exit with code 1 unless all answers are equal.")
    ] = False,
    as_json: options.AsJsonLines = False,
) -> None:
    """Repeat a recorded run with another model or prompt, and compare the answers.

    Reruns the version that the newest run read, or the one in --at. The answer is stored in an experiment, a separate
    conversation that lists leave out. No function is executed: a call gets the recorded result of an equal call, each
    once; any other call gets "not available in a rerun" and is listed. The provider is really called, and charges.

    Example: `frameledger rerun ctx-1 --at 12 --provider anthropic --times 3 --prices prices.toml`
    """
    names = [*dict.fromkeys([*([context] if context else []), *(contexts or [])])]
    if all_runs:
        _check_many(names, at, since)
    elif contexts or since is not None or report_to is not None:
        raise typer.BadParameter("use them with --all-runs", param_hint="--context, --since, --report")
    elif context is None:
        raise typer.BadParameter("give the id of a conversation", param_hint="CONTEXT")
    with backend.exit_on_error():
        settings = Settings.from_env()
        named = provider or settings.inference_provider
        if named:
            plugins.require_key(named, settings)
        paid = None if price_list is None else prices.read(price_list)
        rerun_options = RerunOptions(settings, named, Changes(model, system), times, paid)
        if all_runs:
            same = asyncio.run(
                work.rerun_all(rerun_options, names, since, jobs, report_to or report.default_path(), as_json)
            )
        else:
            assert context is not None
            same = asyncio.run(work.rerun_one(rerun_options, context, at, as_json))
    if check and not same:
        raise typer.Exit(1)


def _check_many(names: Sequence[str], at: moment.At | None, since: datetime | None) -> None:
    """Raise `BadParameter` for options that do not select the runs of whole conversations."""
    if at is not None:
        raise typer.BadParameter("it cannot be used with --all-runs", param_hint="--at")
    if not names and since is None:
        raise typer.BadParameter(
            "select conversations with CONTEXT, --context or --since", param_hint="--all-runs"
        )
