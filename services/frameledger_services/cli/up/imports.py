"""What the commands import that `up` and the demo run in processes of their own: it is imported once, in the process
that they are forked from. A module that is missing here costs time and nothing else: who needs it imports it."""

from __future__ import annotations

from collections.abc import Iterable

OURS = "frameledger_services"

SETUP = (f"{OURS}.cli.migrate", "alembic.runtime.migration", f"{OURS}.cli.topics")
"""First, since it is run first."""

SERVICES = (f"{OURS}.cli.run", f"{OURS}.cli.ops", "uvloop")
"""Of every service."""

OF_EACH = {
    "projector": (f"{OURS}.projector.service",),
    "timekeeper": (f"{OURS}.timekeeper.service",),
    "inference": (f"{OURS}.inference.service", f"{OURS}.providers.plugins"),
    "functions": (f"{OURS}.functions", f"{OURS}.functions.app_module", f"{OURS}.providers.plugins"),
    "gateway": (f"{OURS}.gateway.service",),
}
"""Of each service by its name."""


def of(services: Iterable[str]) -> list[str]:
    """Returns the modules for these services, and for what is run before them."""
    return [*SETUP, *SERVICES, *(module for name in services for module in OF_EACH[name])]
