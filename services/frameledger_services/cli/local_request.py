"""Requests to the services that run on this machine."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException, HTTPResponse

_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Without the proxies of the environment, which do not reach this machine."""


@contextmanager
def asked(address: str, within: float) -> Iterator[HTTPResponse]:
    """Yields the response of an address. Raises OSError, also for a status of 400 or above, after `within` seconds of
    silence, and for a server that does not speak HTTP; and ValueError for what is no address."""
    try:
        with _OPENER.open(address, timeout=within) as response:
            yield response
    except HTTPException as error:
        raise ConnectionError(f"{address} does not answer in HTTP: {error}") from error
