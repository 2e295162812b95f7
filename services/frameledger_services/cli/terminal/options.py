"""Arguments and options that several commands have."""

from typing import Annotated

import typer

from frameledger.record import MAX_KEY_BYTES


def context_id(given: str | None) -> str | None:
    """A callback of Typer for a conversation's id, which is the key of its records."""
    if given is not None and (
        "\x00" in given or not 1 <= len(given.encode(errors="replace")) <= MAX_KEY_BYTES
    ):
        raise typer.BadParameter(f"a conversation's id has 1 to {MAX_KEY_BYTES} bytes, and no NUL")
    return given


Context = Annotated[str, typer.Argument(metavar="CONTEXT", help="The conversation.", callback=context_id)]
Experiments = Annotated[
    bool, typer.Option("--experiments", help="Also experiments, such as reruns.", show_default=False)
]
AsJson = Annotated[bool, typer.Option("--json", help="Print a JSON object instead.")]
AsJsonLines = Annotated[
    bool, typer.Option("--json", help="Print a JSON object for each, on a line of its own.")
]
