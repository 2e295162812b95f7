"""Lets a test process read certificates only once.

httpx, and the SDKs of providers that use it, read those of all authorities for each client, in 50 ms of processor time:
a fifth of the cost of tests with such clients, although none of them uses TLS.
"""

from functools import cache

from httpx._transports import default


def keep() -> None:
    """Let all httpx clients in this process share a TLS context from now on. Replaces a private name, because no public
    one also covers the clients of SDKs."""
    default.create_ssl_context = cache(default.create_ssl_context)  # type: ignore[attr-defined]
