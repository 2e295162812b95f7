"""Messages that the model reads as the result of a call whose function returned none. The function service and the
timekeeper use the same texts. No text contains a time or a limit, because these differ between services, or an error of
a handler, because it may contain secrets."""

from __future__ import annotations

from frameledger.tools import MISSING_FUNCTION_CALL_MESSAGE_TEMPLATE


def missing(name: str) -> str:
    return MISSING_FUNCTION_CALL_MESSAGE_TEMPLATE.format(function_name=name)


def late(name: str) -> str:
    return f"The function `{name}` was not run: it was not started in time."


def ambiguous(name: str) -> str:
    return (
        f"It is unknown whether `{name}` took effect: it was started, and its outcome was never reported. Do not call "
        "it again on your own. Tell the user that this has to be checked."
    )


def failed(name: str) -> str:
    return f"The function `{name}` failed."


def no_json(name: str) -> str:
    return f"The function `{name}` finished, but its result cannot be shown: it is not JSON."


def too_large(name: str) -> str:
    return f"The function `{name}` finished, but its result is too large to be shown. Request less."


def not_run(name: str) -> str:
    return f"The function `{name}` was not run: its service is stopping. You may call it again."


def stopped(name: str) -> str:
    return f"The function `{name}` did not finish: its service is stopping. You may call it again."
