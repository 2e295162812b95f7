"""Findings of `doctor` about the services that `up` runs: those that it starts again and again, and the answers that
the others give at `/readyz`."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import Mapping

from frameledger_services.cli import local_request
from frameledger_services.cli.doctor.finding import Finding
from frameledger_services.cli.terminal import suggestion
from frameledger_services.settings import Settings
from frameledger_services.telemetry.health import AWAY, CHECK_SECONDS, OK

WITHIN = 2 * CHECK_SECONDS
"""Timeout in seconds. A process whose own check of a server times out answers after half of it."""


async def findings(settings: Settings) -> list[Finding]:
    """Returns the findings about the services of a running `up`; none if `up` is not running."""
    addresses, ended = _services(settings)
    answers = await asyncio.gather(*(asyncio.to_thread(_ask, address) for address in addresses.values()))
    return [
        Finding(
            "ready",
            "fail",
            f"The {name} is not running: it {word or 'ended'}.",
            f"Its log says why: `{suggestion.command('logs', name)}`. `up` starts it again until it runs.",
        )
        for name, word in ended.items()
    ] + of(dict(zip(addresses, answers, strict=True)))


def of(readiness: Mapping[str, Mapping[str, str]]) -> list[Finding]:
    """Converts the readiness checks of these processes to findings."""
    wrong = [
        Finding(
            "ready",
            "fail",
            f"The {name} is not ready: {'; '.join(f'{check}: {result}' for check, result in checks.items())}",
            f"See `frameledger status` and the log of the {name}.",
        )
        for name, checks in readiness.items()
        if any(result != OK for result in checks.values())
    ]
    if readiness and not wrong:
        return [Finding("ready", "ok", f"{', '.join(readiness).capitalize()} are ready.")]
    return wrong


def _services(settings: Settings) -> tuple[dict[str, str], dict[str, str]]:
    """Returns the addresses of the services of `up` that run, and what `up` says of those that ended, each by name."""
    # The embedded servers need Linux or macOS; the command line also runs on Windows.
    try:
        from frameledger_services.embedded.record import State, record_of_running
    except ImportError:
        return {}, {}
    record = record_of_running(settings.directory)
    services = () if record is None else record.processes
    addresses = {
        one.name: one.metrics.removesuffix("/metrics") + "/readyz"
        for one in services
        if one.metrics is not None and one.state is State.RUNNING
    }
    # The checks of the broker and of the database report a server of `up` that ended.
    ended = {
        one.name: one.word for one in services if one.metrics is not None and one.state is State.BACKING_OFF
    }
    return addresses, ended


def _ask(address: str) -> dict[str, str]:
    """Returns the checks that failed, or all checks if none failed."""
    try:
        with local_request.asked(address, WITHIN) as answer:
            body = answer.read()
    except urllib.error.HTTPError as refusal:
        with refusal:
            body = refusal.read()
    except OSError:
        return {"process": AWAY}
    try:
        checks: dict[str, str] = json.loads(body)["checks"]
    except (ValueError, KeyError, TypeError):
        return {"process": "its answer is not that of /readyz"}
    return {check: word for check, word in checks.items() if word != OK} or checks
