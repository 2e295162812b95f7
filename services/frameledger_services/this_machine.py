"""Which names and addresses of hosts are those of this machine."""

from __future__ import annotations

import ipaddress


def is_this_machine(host: str) -> bool:
    """Returns whether a host's name or address is one that only this machine reaches."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
