"""Which host names and addresses are those of this machine."""

from __future__ import annotations

import ipaddress


def is_this_machine(host: str) -> bool:
    """Returns whether only this machine can reach a host of this name or address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
