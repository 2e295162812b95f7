"""The command line `frameledger`: one module per group of commands, put together here.

A group is a module of this package with a Typer app named `commands`. With a name of its own the app's commands
stand under that name (`frameledger bench core`), without one at the top (`frameledger fold`). A module is imported when
one of its commands is called, so each has a line in `GROUPS` with the first paragraph of its help.

To add a command: a module with `commands = typer.Typer()` and a function under `@commands.command()`, and its line in
`GROUPS`. `tests/unit/test_cli_start.py` compares the two. What commands share is in `terminal/`.

Exit codes, of every command: 0 done, 1 the world said no (a file that is not there, a check that failed),
2 the command was called wrongly. A command says no with `output.fail`, its reason on standard error.
"""

import io
import sys
from typing import Annotated

import typer

from frameledger_services.cli.terminal.lazy_commands import STYLE, LazyCommand, group_of

GROUPS = {
    "See it work": {
        "demo": LazyCommand(
            "demo.command",
            "Have a conversation on real servers, and show in SQL what becomes of it.",
            extras=("services", "embedded"),
        ),
        "chat": LazyCommand("chat.command", "Talk with the model that answers a conversation."),
    },
    "Run it": {
        "up": LazyCommand(
            "up.command",
            "Start Kafka, PostgreSQL and all services, and keep them running.",
            extras=("services", "embedded"),
        ),
        "down": LazyCommand(
            "up.command",
            "Stop everything that `up` started here, also what a killed `up` left behind.",
            extras=("services", "embedded"),
        ),
        "status": LazyCommand(
            "up.command",
            "List every process with its pid, address, state and uptime, and how far each partition was read.",
            extras=("services", "embedded"),
        ),
        "logs": LazyCommand(
            "up.logs",
            "Print the last log lines of each process that `frameledger up` runs.",
            extras=("services", "embedded"),
        ),
        "top": LazyCommand(
            "top.command",
            "Show what the whole installation does just now, until Ctrl-C.",
            extras=("services",),
        ),
        "run": LazyCommand(
            "run", "Run one service in this process, until SIGTERM or Ctrl-C.", extras=("services",)
        ),
    },
    "Put frames in": {
        "publish": LazyCommand("publish", "Publish frames of a conversation, in the order given."),
    },
    "Find and look": {
        "list": LazyCommand("conversations", "List conversations, the last active first."),
        "search": LazyCommand(
            "conversations", "Find messages that contain a text, in all conversations, the newest first."
        ),
        "show": LazyCommand(
            "show", "Show a context as a model gets it: messages, tools, tool choice and settings."
        ),
        "transcript": LazyCommand("transcript", "Show who said what in a conversation, and when."),
        "tail": LazyCommand("tail", "Show the last frames."),
        "request": LazyCommand(
            "request",
            "Show the request that a run sent to its model, made again from the log.",
            extras=("services",),
        ),
        "sql": LazyCommand(
            "sql", "Open psql on the database; what follows is psql's, or one statement to run."
        ),
        "fold": LazyCommand(
            "fold.command", "Show the context after the frames of a file, and what became of each frame."
        ),
    },
    "Ask what happened, and why": {
        "timeline": LazyCommand(
            "audit.timeline",
            "Show every frame of a conversation: when it came, what it did, and what became of it.",
        ),
        "diff": LazyCommand(
            "audit.diff",
            "Show what changed in a context between two versions: messages, tools and settings.",
        ),
        "why": LazyCommand(
            "audit.why",
            "Show why a message is in a context: the frames, the run or call, and the cause that it comes from.",
        ),
        "runs": LazyCommand(
            "audit.runs",
            "Show every run of a conversation: what became of it, its model, how long it took, and its tokens.",
        ),
    },
    "Try a moment again": {
        "fork": LazyCommand(
            "fork",
            "Continue an old moment of a conversation as a new one: its messages, tools, tool choice and settings "
            "then.",
        ),
        "rerun": LazyCommand(
            "rerun.command",
            "Ask a recorded moment again, of another model or with another prompt, and compare the answers.",
            extras=("services",),
        ),
        "replay": LazyCommand(
            "replay.command",
            "Play a conversation in the terminal as it was heard, or publish copies of its frames with "
            "their timing.",
        ),
        "infer": LazyCommand(
            "infer",
            "Ask a model and print what it says. Nothing is published, and the conversation does not change.",
        ),
    },
    "Settle and mend": {
        "calls": LazyCommand(
            "calls", "Function calls that go on, wait for a person, or may or may not have happened."
        ),
        "doctor": LazyCommand(
            "doctor.command",
            "Look at everything, and say what is wrong, what it means and what to do.",
            extras=("services",),
        ),
        "parked": LazyCommand(
            "repair.parked",
            "List the conversations that are parked: stored on, and not folded, since a frame that could not be.",
            extras=("services",),
        ),
        "unpark": LazyCommand(
            "repair.parked",
            "Fold what is parked of a conversation, in its order, once the cause is mended.",
            extras=("services",),
        ),
        "rebuild": LazyCommand(
            "audit.rebuild",
            "Fold conversations again, and compare each with its tables; with --apply replace what differs.",
            extras=("services",),
        ),
        "recover": LazyCommand(
            "repair.recover", "Go on with a log that changed under the tables.", extras=("services",)
        ),
        "dlq": LazyCommand(
            "repair.dlq",
            "Dead letters: records that are no frame. They changed nothing, and nothing of them is lost.",
        ),
    },
    "Prove, take along, forget": {
        "verify": LazyCommand("audit.verify", "Verify that nothing was changed."),
        "heads": LazyCommand(
            "audit.heads",
            "Compute one number for the whole database: the root of a Merkle tree over the heads of all "
            "conversations.",
            extras=("services",),
        ),
        "prove": LazyCommand(
            "audit.prove",
            "Write a proof of a conversation: its frames as they are stored, and their way to a root.",
            extras=("services",),
        ),
        "export": LazyCommand(
            "transfer.export_files",
            "Write conversations to a file, to take them along.",
            extras=("services",),
        ),
        "import": LazyCommand(
            "transfer.import_files",
            "Make the conversations of an exported file conversations of this database: same frames, same chain.",
            extras=("services",),
        ),
        "erase": LazyCommand("erase", "Erase a conversation for good, and print the receipt."),
    },
    "Set up and measure": {
        "migrate": LazyCommand(
            "migrate",
            "Bring the database to the shape that this release needs; again changes nothing.",
            extras=("services",),
        ),
        "topics": LazyCommand("topics", "List the topics, and say what is wrong with them."),
        "token": LazyCommand("token", "Tokens of the gateway: who may use it, and for what."),
        "config": LazyCommand(
            "config", "Show all settings with their source, and what each is for; secrets are hidden."
        ),
        "asyncapi": LazyCommand(
            "asyncapi",
            "Print the AsyncAPI 3.0 document of the topics: every frame, effect and header, as JSON.",
        ),
        "bench": LazyCommand(
            "bench",
            "How fast the parts are. Every figure has a yardstick, measured in the same run, and most have a goal.",
            extras=("services", "embedded"),
        ),
    },
}
"""All commands beneath the titles and in the order in which they are listed."""

COMMANDS = {name: command for group in GROUPS.values() for name, command in group.items()}


def main() -> None:
    """Run the command that the process was called with, and end the process with its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # People write in any script; what an encoding cannot say is shown as an escape, not as a traceback.
            stream.reconfigure(errors="backslashreplace")
    application()(prog_name="frameledger")


def application() -> typer.Typer:
    """The whole command line. Each call makes a new one; nothing is imported, read or run until it is called."""
    app = typer.Typer(
        cls=group_of(GROUPS),
        help="An event-sourced context store for LLM conversations.",
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"]},
        **STYLE,
    )
    app.callback()(_options)
    return app


def _say_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"frameledger {version('frameledger')}")
        raise typer.Exit


def _options(
    _: Annotated[
        bool,
        typer.Option("--version", callback=_say_version, is_eager=True, help="Print the version and end."),
    ] = False,
) -> None:
    """What stands before a command's name."""
