"""What `doctor` says of the services that `up` runs: what each says of itself, at its `/readyz`."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import Mapping

from frameledger_services.cli.doctor.finding import Finding
from frameledger_services.settings import Settings
from frameledger_services.telemetry.health import AWAY, CHECK_SECONDS, OK

WITHIN = 2 * CHECK_SECONDS
"""Seconds: a process that asks a server in vain answers after half of them."""


async def findings(settings: Settings) -> list[Finding]:
    """Those of the services that a running `up` has; none without one."""
    asked = _addresses(settings)
    found = await asyncio.gather(*(asyncio.to_thread(_ask, address) for address in asked.values()))
    return of(dict(zip(asked, found, strict=True)))


def of(found: Mapping[str, Mapping[str, str]]) -> list[Finding]:
    """What the checks of these processes mean."""
    wrong = [
        Finding(
            "ready",
            "fail",
            f"The {name} says of itself: {', '.join(f'{check}: {said}' for check, said in checks.items())}",
            f"`frameledger status`, and the log of the {name}, say more.",
        )
        for name, checks in found.items()
        if any(said != OK for said in checks.values())
    ]
    if found and not wrong:
        return [Finding("ready", "ok", f"{', '.join(found).capitalize()} say that they are ready.")]
    return wrong


def _addresses(settings: Settings) -> dict[str, str]:
    # The embedded servers are for Linux and macOS; the command line is for all.
    try:
        from frameledger_services.embedded.record import State, read_record
    except ImportError:
        return {}
    record = read_record(settings.data_dir.resolve())
    running = () if record is None else record.processes
    return {
        one.name: one.metrics.removesuffix("/metrics") + "/readyz"
        for one in running
        if one.metrics is not None and one.state is State.RUNNING
    }


def _ask(address: str) -> dict[str, str]:
    """Returns its checks; what is not `OK` alone if there is such a one."""
    try:
        with urllib.request.urlopen(address, timeout=WITHIN) as answer:
            said = answer.read()
    except urllib.error.HTTPError as error:
        said = error.read()
    except OSError:
        return {"process": AWAY}
    try:
        checks: dict[str, str] = json.loads(said)["checks"]
    except (ValueError, KeyError, TypeError):
        return {"process": "It answers something else."}
    return {check: word for check, word in checks.items() if word != OK} or checks
