"""What `frameledger up` runs besides the servers: the setup commands and the services that the settings request."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from frameledger_services import extras
from frameledger_services.settings import GATEWAY_PORT, Settings

# The embedded servers are imported inside the functions: they need Linux or macOS, and the command line runs anywhere.
if TYPE_CHECKING:
    from frameledger_services.embedded import command_programs

SERVICES: tuple[tuple[str, ...], ...] = (("run", "projector"), ("run", "timekeeper"))
"""Commands that `up` keeps running, each in its own process."""

ANSWERING = ("run", "inference")
"""Also run if the settings name a provider."""

GATEWAY = ("run", "gateway")
"""Also run if its extra is installed."""

METRICS_PORT = 18091
"""Metrics port of the first service; the others use the following ports. A port in use is replaced by a free one."""


def setup() -> list[command_programs.Command]:
    """Returns the commands that `up` runs once, in this order, when the servers that they need are ready."""
    from frameledger_services.embedded import command_programs

    return [
        command_programs.Command("migrate", ("migrate",), before_kafka=True),
        command_programs.Command("topics", ("topics", "--create")),
    ]


def always() -> list[command_programs.Command]:
    """Returns the services that run with any settings."""
    from frameledger_services.embedded import command_programs

    return [command_programs.Command(words[-1], words) for words in SERVICES]


def configured(settings: Settings) -> list[command_programs.Command]:
    """Returns the services that these settings request, each with its metrics port."""
    from frameledger_services.embedded import command_programs

    services = always()
    if settings.inference_provider is not None:
        services.append(command_programs.Command(ANSWERING[-1], ANSWERING))
    if extras.is_installed("gateway"):
        services.append(command_programs.Command(GATEWAY[-1], GATEWAY, preferred_port=GATEWAY_PORT))
    first = METRICS_PORT if settings.metrics_port is None else settings.metrics_port
    return [replace(one, metrics_port=first + place) for place, one in enumerate(services)]
