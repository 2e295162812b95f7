"""Arguments and options that several commands have."""

from typing import Annotated

import typer

Context = Annotated[str, typer.Argument(metavar="CONTEXT", help="The conversation.")]
Experiments = Annotated[
    bool, typer.Option("--experiments", help="Also experiments, such as reruns.", show_default=False)
]
AsJson = Annotated[bool, typer.Option("--json", help="Print a JSON object instead.")]
AsJsonLines = Annotated[
    bool, typer.Option("--json", help="Print a JSON object for each, on a line of its own.")
]
