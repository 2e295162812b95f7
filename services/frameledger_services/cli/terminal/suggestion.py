"""Commands that the output suggests, written for a shell to copy."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from frameledger_services.cli.terminal import escape


def command(name: str, *arguments: str, options: Sequence[str] = ()) -> str:
    """Returns the command `frameledger NAME` with these arguments and options, quoted for a shell.

    Control characters are replaced, so a command about an id that has some cannot be copied.
    """
    # Behind `--` an argument that begins with a dash is not read as an option.
    words = (
        [*options, "--", *arguments]
        if any(argument.startswith("-") for argument in arguments)
        else [*arguments, *options]
    )
    return " ".join(["frameledger", name, *(shlex.quote(escape.printable(word)) for word in words)])
