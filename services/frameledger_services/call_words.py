"""Messages for the model as the result of a call whose function returned none. The function service and the timekeeper
use the same texts. No text contains a time or a limit, because these differ between services, or an error of a handler,
because it may contain secrets."""

from __future__ import annotations

from frameledger.tools import MISSING_FUNCTION_CALL_MESSAGE_TEMPLATE

LONGEST_NAME = 200
"""Maximum number of characters of a function's name in the texts. No provider accepts a name of more than 128."""


def shown(name: str) -> str:
    """Returns the name, shortened: a frame that announces a call may be nearly filled by it, and then no frame with the
    name and more could be published. No rule of the fold reads the name in a settlement."""
    return name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}..."


def missing(name: str) -> str:
    return MISSING_FUNCTION_CALL_MESSAGE_TEMPLATE.format(function_name=shown(name))


def late(name: str) -> str:
    return f"The function `{shown(name)}` was not run: it was not started in time."


def ambiguous(name: str) -> str:
    return (
        f"It is unknown whether `{shown(name)}` took effect: it was started, and its outcome was never reported. Do "
        "not call it again on your own. Tell the user that this has to be checked."
    )


def failed(name: str) -> str:
    return f"The function `{shown(name)}` failed."


def no_json(name: str) -> str:
    return f"The function `{shown(name)}` finished, but its result cannot be shown: it is not JSON."


def too_large(name: str) -> str:
    return f"The function `{shown(name)}` finished, but its result is too large to be shown. Request less."


def not_run(name: str) -> str:
    return f"The function `{shown(name)}` was not run: its service is stopping. You may call it again."


def given_up(name: str) -> str:
    return f"The function `{shown(name)}` was started several times and never finished. It is not run again."


def stopped(name: str) -> str:
    return f"The function `{shown(name)}` did not finish: its service is stopping. You may call it again."
