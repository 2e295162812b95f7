"""Cross-site request forgery: whether a page of another origin makes a browser send a request.

A browser adds authority of its own: a cookie, or simply that it runs on this machine. It also says where a request
comes from, by `Sec-Fetch-Site` or, if it is old, by `Origin`; a page can set neither. A request without both does not
come from a browser.
"""

from __future__ import annotations

from starlette.datastructures import Headers

from frameledger_services.gateway.access.policy import SAFE


def is_forged(method: str, headers: Headers) -> bool:
    """Returns whether a request that changes something comes from a page of another origin.

    A request with an `Authorization` header does not: a browser adds none on its own.
    """
    if method in SAFE or "authorization" in headers:
        return False
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site not in ("same-origin", "none")
    origin = headers.get("origin")
    return origin is not None and origin.partition("://")[2] != headers.get("host", "")
