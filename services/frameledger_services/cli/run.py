"""`frameledger run`: one service in this process, until it is told to stop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated

import typer

from frameledger_services import extras, logs
from frameledger_services.cli.terminal import backend, output
from frameledger_services.settings import Settings
from frameledger_services.settings_types import names_in
from frameledger_services.telemetry.metrics_recorder import Metrics
from frameledger_services.telemetry.provider import recording

commands = typer.Typer(
    name="run", no_args_is_help=True, help="Run one service in this process, until SIGTERM or Ctrl-C."
)


@commands.command()
def projector() -> None:
    """Fold what is published into Postgres, each frame once.

    Run as many as there is work for: they share the partitions. `frameledger up` runs one.

    Example: `frameledger run projector`
    """
    from frameledger_services import process
    from frameledger_services.projector import service

    process.collect_garbage_rarely()
    with backend.exit_on_error():
        settings, metrics = _begin()
        _run(
            "projector",
            settings,
            metrics,
            lambda stopping: service.serve(settings, stopping, metrics=metrics),
        )


@commands.command()
def timekeeper() -> None:
    """Settle what is overdue: runs and calls that nobody takes or ends, and speakers whose stop never comes.

    One is enough, and a second one does no harm: they act once. The limits are settings, FRAMELEDGER_TIMEKEEPER_...
    `frameledger up` runs one.

    Example: `frameledger run timekeeper`
    """
    from frameledger_services.timekeeper import service

    with backend.exit_on_error():
        settings, metrics = _begin()
        _run(
            "timekeeper",
            settings,
            metrics,
            lambda stopping: service.serve(settings, stopping, metrics=metrics),
        )


@commands.command()
def inference(
    provider: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Who answers. Instead of FRAMELEDGER_INFERENCE_PROVIDER."),
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="MODEL", help="The model, where a context names none.")
    ] = None,
    models: Annotated[
        str | None,
        typer.Option(
            metavar="LIST", help="Models, separated by commas: contexts that name another are not ours."
        ),
    ] = None,
    service: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Services of one name share their work, and serve the same models."
        ),
    ] = None,
    slots: Annotated[int | None, typer.Option(min=1, metavar="N", help="Runs at once.")] = None,
    script: Annotated[
        Path | None, typer.Option(metavar="FILE", help="What the provider `scripted` says.")
    ] = None,
) -> None:
    """Answer the runs that conversations ask for, with a model.

    Run as many as there is work for: they share the runs, and take over what one of them leaves. SIGTERM lets it
    finish what it is saying, within a deadline. `frameledger up` runs one if a provider is set.

    Example: `frameledger run inference --provider scripted`
    """
    from frameledger_services.inference.service import InferenceService
    from frameledger_services.providers import plugins

    given = {
        "inference_provider": provider,
        "inference_model": model,
        "inference_models": models,
        "inference_service": service,
        "inference_script": script,
    }
    with backend.exit_on_error():
        settings, metrics = _begin()
        settings = settings.model_copy(
            update={name: word for name, word in given.items() if word is not None}
        )
        if settings.inference_provider is None:
            output.fail(
                "It is not said who answers.",
                f"Set FRAMELEDGER_INFERENCE_PROVIDER or --provider to one of: {', '.join(plugins.known())}.",
            )
        plugins.require_key(settings.inference_provider, settings)
        answering = InferenceService(
            settings,
            plugins.create(settings.inference_provider, settings),
            service=settings.inference_service,
            models=names_in(settings.inference_models or ""),
            slots=slots,
            metrics=metrics,
        )
        _run("inference", settings, metrics, answering.run)


@commands.command()
def functions(
    module: Annotated[
        str, typer.Option(metavar="MODULE", help="Where the functions are: importable, or in this folder.")
    ],
    service: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Services of one name share their calls, and serve the same functions. Not given: the module's name.",
        ),
    ] = None,
    slots: Annotated[int | None, typer.Option(min=1, metavar="N", help="Calls at once.")] = None,
) -> None:
    """Run the functions that models call, from a Python module.

    The module has a `FunctionRegistry` named `registry`, and may have `app_resources`, which every handler is given.
    Run as many as there is work for: they share the calls. SIGTERM lets functions finish, within a deadline. Handlers
    can ask the model that FRAMELEDGER_INFERENCE_PROVIDER names, if it is set.

    Example: `frameledger run functions --module my_tools`
    """
    from frameledger_services.functions import FunctionService
    from frameledger_services.functions.app_module import load
    from frameledger_services.providers import plugins

    with backend.exit_on_error():
        settings, metrics = _begin()
        found = load(module)
        provider = settings.inference_provider
        running = FunctionService(
            settings,
            found.registry,
            service=service or module,
            app_resources=found.app_resources,
            llm=None if provider is None else plugins.create(provider, settings),
            slots=slots,
            metrics=metrics,
        )
        _run("functions", settings, metrics, running.run)


@commands.command()
def gateway() -> None:
    """Answer HTTP: conversations to read, and frames to append.

    It listens at FRAMELEDGER_GATEWAY_HOST and FRAMELEDGER_GATEWAY_PORT, 127.0.0.1:18080 unless they are set. SIGTERM
    lets it finish the requests that have begun. Run as many as there is work for.

    Example: `frameledger run gateway`
    """
    with backend.exit_on_error():
        extras.check("gateway")
        from frameledger_services.gateway import service

        settings, metrics = _begin()
        _run(
            "gateway", settings, metrics, lambda stopping: service.serve(settings, stopping, metrics=metrics)
        )


def _begin() -> tuple[Settings, Metrics]:
    """Returns the settings, and what this process counts with; from here on it logs as they say."""
    from frameledger_services.cli import ops

    settings = Settings.from_env()
    logs.configure(settings.log_level, settings.log_format)
    return settings, ops.metrics_of(settings)


def _run(
    name: str, settings: Settings, metrics: Metrics, serve: Callable[[asyncio.Event], Awaitable[None]]
) -> None:
    """Run a service in this process, watched if the settings say where, and traced if the environment does: here, since
    a module of functions that sets a provider of its own keeps it."""
    from frameledger_services.cli import ops

    with recording(name, metrics):
        ops.run_service(settings, metrics, serve)
