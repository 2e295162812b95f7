"""A test process reads certificates only once.

httpx, and the SDKs of providers that use it, read those of all authorities for each client, in 50 ms of processor time:
a fifth of what tests with such clients cost. None of them speaks TLS.
"""

from functools import cache

from httpx._transports import default


def keep() -> None:
    """From now on the httpx clients in this process share a TLS context. The replaced name is private: no public one
    also covers the clients of SDKs."""
    default.create_ssl_context = cache(default.create_ssl_context)  # type: ignore[attr-defined]
