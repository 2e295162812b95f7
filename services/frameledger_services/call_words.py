"""What the model reads of a call that ended without a result of its function: the same from a function service and from
the timekeeper. No text names a time or a limit, which differ between services, nor an error of a handler, which may
hold secrets."""

from __future__ import annotations

from frameledger.tools import MISSING_FUNCTION_CALL_MESSAGE_TEMPLATE


def missing(name: str) -> str:
    return MISSING_FUNCTION_CALL_MESSAGE_TEMPLATE.format(function_name=name)


def late(name: str) -> str:
    return f"The function `{name}` was not run: it was not started in time."


def ambiguous(name: str) -> str:
    return (
        f"It is not known whether `{name}` was carried out: it was begun, and its end was never told. Do not call it "
        "again by yourself. Tell the user that it has to be checked."
    )


def failed(name: str) -> str:
    return f"The function `{name}` failed."


def no_json(name: str) -> str:
    return f"The function `{name}` finished, but its result cannot be shown: it is no JSON."


def too_large(name: str) -> str:
    return f"The function `{name}` finished, but its result is too large to be shown. Ask it for less."


def not_run(name: str) -> str:
    return f"The function `{name}` was not run: its service is being stopped. It may be called again."
