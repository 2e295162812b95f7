"""The modules of the commands that `up` and the demo run in separate processes. They are imported once, in the process
from which the others are forked. A module missing here only costs time: the command imports it."""

from __future__ import annotations

from collections.abc import Iterable

OURS = "frameledger_services"

SETUP = (f"{OURS}.cli.migrate", "alembic.runtime.migration", f"{OURS}.cli.topics")
"""Imported first, because these commands run first."""

SERVICES = (f"{OURS}.cli.run", f"{OURS}.cli.ops", "uvloop")
"""Modules of every service."""

OF_EACH = {
    "projector": (f"{OURS}.projector.service",),
    "timekeeper": (f"{OURS}.timekeeper.service",),
    "inference": (f"{OURS}.inference.service", f"{OURS}.providers.plugins"),
    "functions": (f"{OURS}.functions", f"{OURS}.functions.app_module", f"{OURS}.providers.plugins"),
    "gateway": (f"{OURS}.gateway.service",),
}
"""Further modules by service."""


def of(services: Iterable[str]) -> list[str]:
    """Returns the modules for these services and the setup commands."""
    return [*SETUP, *SERVICES, *(module for name in services for module in OF_EACH[name])]
