"""Arguments and options that several commands have."""

from typing import Annotated

import typer

Context = Annotated[str, typer.Argument(metavar="CONTEXT", help="The conversation.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print a JSON object instead.")]
AsJsonLines = Annotated[
    bool, typer.Option("--json", help="Print a JSON object for each, on a line of its own.")
]
