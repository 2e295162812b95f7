"""Arguments and options that several commands have."""

from typing import Annotated

import typer

from frameledger.record import MAX_KEY_BYTES


def context_id(value: str | None) -> str | None:
    """Typer callback that validates a conversation's id, which is the key of its records."""
    return _id("a conversation's id", value)


def frame_id(value: str | None) -> str | None:
    """Typer callback that validates the id of a frame."""
    return _id("a frame's id", value)


def _id(what: str, value: str | None) -> str | None:
    if value is not None and (
        "\x00" in value or not 1 <= len(value.encode(errors="replace")) <= MAX_KEY_BYTES
    ):
        raise typer.BadParameter(f"{what} has 1 to {MAX_KEY_BYTES} bytes, and no NUL")
    return value


def context_ids(values: list[str] | None) -> list[str] | None:
    """Typer callback that validates each id of an argument or option that takes several."""
    for value in values or ():
        context_id(value)
    return values


Context = Annotated[
    str, typer.Argument(metavar="CONTEXT", help="Id of the conversation.", callback=context_id)
]
Experiments = Annotated[
    bool,
    typer.Option("--experiments", help="Include experiments, such as reruns.", show_default=False),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print a JSON object.")]
AsJsonLines = Annotated[bool, typer.Option("--json", help="Print JSON Lines: one object per line.")]
