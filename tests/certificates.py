"""Certificates are read once by a process of tests.

httpx, and the SDKs of providers that use it, read those of all authorities for each client, in 50 ms of processor time:
a fifth of what tests with such clients cost. None of them speaks TLS.
"""

from functools import cache

from httpx._transports import default


def keep() -> None:
    """From now on the clients of httpx in this process share a TLS context. No public name leads to it that the
    clients of SDKs would use too."""
    default.create_ssl_context = cache(default.create_ssl_context)  # type: ignore[attr-defined]
