"""Headers that a request may have only once: of two, a proxy before the gateway may have used either."""

from __future__ import annotations

from collections.abc import Sequence

from frameledger_services.gateway.problems import ProblemError

SINGLE = (
    b"authorization",
    b"content-type",
    b"frameledger-causation-id",
    b"frameledger-context",
    b"host",
    b"idempotency-key",
    b"if-match",
    b"last-event-id",
)


def check_single(headers: Sequence[tuple[bytes, bytes]]) -> None:
    """Raise `bad-parameter` if one of `SINGLE` comes twice."""
    if len({name for name, _ in headers}) == len(headers):
        return
    names = [name for name, _ in headers]
    for name in SINGLE:
        if names.count(name) > 1:
            raise ProblemError(
                "bad-parameter",
                f"The request has the header {name.decode().title()} more than once. Send one.",
            )
