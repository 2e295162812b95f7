"""`frameledger run`: one service in this process, until a signal."""

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
    """Run a projector: fold published frames into PostgreSQL, each exactly once.

    Projectors share the partitions: run several to increase throughput. `frameledger up` runs one.

    Example: `frameledger run projector`
    """
    from frameledger_services import process
    from frameledger_services.projector import service

    process.collect_garbage_rarely()
    _serve("projector", service.serve)


@commands.command()
def timekeeper() -> None:
    """Run the timekeeper: close runs, calls and turns that exceeded their timeouts.

    One is enough; with several, each timeout is still enforced once. The timeouts are the settings
    FRAMELEDGER_TIMEKEEPER_... `frameledger up` runs one.

    Example: `frameledger run timekeeper`
    """
    from frameledger_services.timekeeper import service

    _serve("timekeeper", service.serve)


@commands.command()
def inference(
    provider: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Provider. Overrides FRAMELEDGER_INFERENCE_PROVIDER."),
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="MODEL", help="Model for conversations that set none.")
    ] = None,
    models: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help="Comma-separated models to serve. Runs of other models are left to other services.",
        ),
    ] = None,
    service: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Service name (consumer group). Workers with the same name share work and must serve the same models.",
        ),
    ] = None,
    slots: Annotated[int | None, typer.Option(min=1, metavar="N", help="Maximum concurrent runs.")] = None,
    script: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Script of the provider `scripted`.")
    ] = None,
) -> None:
    """Run an inference service: execute the runs of conversations with a model.

    Services with the same name share the runs and take over the runs of a service that stops. On SIGTERM it finishes
    its current answers within a deadline. `frameledger up` runs one if a provider is set.

    Example: `frameledger run inference --provider scripted`
    """
    from frameledger_services.inference.service import InferenceService
    from frameledger_services.providers import plugins

    from_options = {
        "inference_provider": provider,
        "inference_model": model,
        "inference_models": models,
        "inference_service": service,
        "inference_script": script,
    }
    with backend.exit_on_error():
        settings, metrics = _begin()
        settings = settings.model_copy(
            update={name: word for name, word in from_options.items() if word is not None}
        )
        if settings.inference_provider is None:
            output.fail(
                "No inference provider is configured.",
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
        str,
        typer.Option(
            metavar="MODULE", help="Module with the functions, importable or in the current folder."
        ),
    ],
    service: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Service name (consumer group). Workers with the same name share work and must serve the same "
            "functions. Default: the module's name.",
        ),
    ] = None,
    slots: Annotated[int | None, typer.Option(min=1, metavar="N", help="Maximum concurrent calls.")] = None,
) -> None:
    """Run a function service: execute the functions that models call, from a Python module.

    The module has a `FunctionRegistry` named `registry`, and may have `app_resources`, which is passed to every
    handler. Services with the same name share the calls. On SIGTERM it finishes running calls within a deadline.
    Handlers can use the model of FRAMELEDGER_INFERENCE_PROVIDER, if that is set.

    Example: `frameledger run functions --module my_tools`
    """
    from frameledger_services.functions import FunctionService
    from frameledger_services.functions.app_module import load
    from frameledger_services.providers import plugins

    with backend.exit_on_error():
        settings, metrics = _begin()
        app = load(module)
        provider = settings.inference_provider
        running = FunctionService(
            settings,
            app.registry,
            service=service or module,
            app_resources=app.app_resources,
            llm=None if provider is None else plugins.create(provider, settings),
            slots=slots,
            metrics=metrics,
        )
        _run("functions", settings, metrics, running.run)


@commands.command()
def gateway() -> None:
    """Run the HTTP gateway: read conversations, append frames, follow live streams.

    It listens at FRAMELEDGER_GATEWAY_HOST and FRAMELEDGER_GATEWAY_PORT, by default 127.0.0.1:18080. On SIGTERM it
    finishes open requests. Run several behind a load balancer.

    Example: `frameledger run gateway`
    """
    with backend.exit_on_error():
        extras.check("gateway")
        from frameledger_services.gateway import service

    _serve("gateway", service.serve)


def _serve(name: str, serve: Callable[..., Awaitable[None]]) -> None:
    """Run a service that needs nothing but the settings."""
    with backend.exit_on_error():
        settings, metrics = _begin()
        _run(name, settings, metrics, lambda stopping: serve(settings, stopping, metrics=metrics))


def _begin() -> tuple[Settings, Metrics]:
    """Returns the settings and the metrics of this process, after configuring its logging."""
    from frameledger_services.cli import ops

    settings = Settings.from_env()
    logs.configure(settings.log_level, settings.log_format)
    return settings, ops.metrics_of(settings)


def _run(
    name: str, settings: Settings, metrics: Metrics, serve: Callable[[asyncio.Event], Awaitable[None]]
) -> None:
    """Run a service in this process, with the operations endpoint if a port is set, and with tracing if the environment
    configures it. Tracing starts here, so that a tracer provider set by a module of functions is kept."""
    from frameledger_services.cli import ops

    async def recorded(stopping: asyncio.Event) -> None:
        # Within the service: the process may end with it, and the last spans are exported before.
        with recording(name, metrics):
            await serve(stopping)

    ops.run_service(settings, metrics, recorded)
