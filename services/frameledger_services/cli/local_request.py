"""Requests to the services that run on this machine."""

from __future__ import annotations

import urllib.request
from http.client import HTTPResponse

_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Without the proxies of the environment, which do not reach this machine."""


def asked(address: str, within: float) -> HTTPResponse:
    """Returns the response of an address, which the caller closes. Raises OSError, also for a status of 400 or above
    and after `within` seconds of silence, and ValueError for what is no address."""
    response: HTTPResponse = _OPENER.open(address, timeout=within)
    return response
