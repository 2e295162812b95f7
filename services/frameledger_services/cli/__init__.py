"""The command line `frameledger`. Each group of commands is a module; this module registers them.

A module of commands has a Typer app named `commands`. If the app has a name, its commands are subcommands of that name
(`frameledger bench core`); otherwise they are top-level commands (`frameledger fold`). A module is imported when one of
its commands is called, so `GROUPS` repeats the first paragraph of each command's help.

To add a command, write a module with `commands = typer.Typer()` and a function decorated with `@commands.command()`,
and add a line to `GROUPS`. `tests/unit/test_cli_start.py` compares the two. `terminal/` has what commands share.

Exit codes of every command: 0 success; 1 failure (a missing file, an unreachable server, a failed check); 2 invalid
usage. A command fails with `output.fail`, which prints the problem and the remedy to standard error.
"""

import errno
import io
import os
import sys
from typing import Annotated

import typer

from frameledger_services.cli.terminal.lazy_commands import STYLE, LazyCommand, group_of

GROUPS = {
    "Try it": {
        "demo": LazyCommand(
            "demo.command",
            "Run a scripted voice conversation on real servers, and show the SQL rows that it produces.",
            extras=("services", "embedded"),
        ),
        "chat": LazyCommand("chat.command", "Chat with the model that answers a conversation."),
    },
    "Run services": {
        "up": LazyCommand(
            "up.command",
            "Start Kafka, PostgreSQL and all services, and restart any that stops.",
            extras=("services", "embedded"),
        ),
        "down": LazyCommand(
            "up.down",
            "Stop everything that `up` started in this directory, including leftovers of a killed `up`.",
            extras=("services", "embedded"),
        ),
        "status": LazyCommand(
            "up.status",
            "List every process with its pid, address, state and uptime, and the lag of each partition.",
            extras=("services", "embedded"),
        ),
        "logs": LazyCommand(
            "up.logs",
            "Print the last log lines of each process that `frameledger up` runs.",
            extras=("services", "embedded"),
        ),
        "top": LazyCommand(
            "top.command",
            "Show live activity of the whole installation until Ctrl-C.",
            extras=("services",),
        ),
        "run": LazyCommand(
            "run", "Run one service in this process, until SIGTERM or Ctrl-C.", extras=("services",)
        ),
    },
    "Publish": {
        "publish": LazyCommand("publish.command", "Publish frames of a conversation, in the order given."),
    },
    "Inspect": {
        "list": LazyCommand("conversations", "List conversations, most recently active first."),
        "search": LazyCommand("conversations", "Search the messages of all conversations, newest first."),
        "show": LazyCommand(
            "show", "Show the context that a model receives: messages, tools, tool choice and settings."
        ),
        "transcript": LazyCommand("transcript", "Show who said what in a conversation, and when."),
        "tail": LazyCommand("tail", "Show the latest frames."),
        "request": LazyCommand(
            "request",
            "Show the request that a run sent to its model, rebuilt from the log.",
            extras=("services",),
        ),
        "sql": LazyCommand(
            "sql",
            "Open psql on the database. Arguments are passed to psql; one of several words is a statement to run.",
        ),
        "fold": LazyCommand(
            "fold.command", "Fold the frames of a file, and show the context and the outcome of each frame."
        ),
    },
    "Explain": {
        "timeline": LazyCommand(
            "audit.timeline",
            "Show every frame of a conversation: its time, its effect on the context, and its outcome.",
        ),
        "diff": LazyCommand(
            "audit.diff",
            "Show what changed in a context between two versions: messages, tools and settings.",
        ),
        "why": LazyCommand(
            "audit.why",
            "Show where a message of a context comes from: its frames, its run or call, and their cause.",
        ),
        "runs": LazyCommand(
            "audit.runs",
            "Show every run of a conversation: its status, model, duration and tokens.",
        ),
    },
    "Fork, rerun and replay": {
        "fork": LazyCommand(
            "fork",
            "Start a new conversation from an earlier version of another: its messages, tools, tool choice and "
            "settings at that version.",
        ),
        "rerun": LazyCommand(
            "rerun.command",
            "Repeat a recorded run with another model or prompt, and compare the answers.",
            extras=("services",),
        ),
        "replay": LazyCommand(
            "replay.command",
            "Play a conversation in the terminal with its timing, or publish copies of its frames to another "
            "conversation.",
        ),
        "infer": LazyCommand(
            "infer",
            "Ask a model and print its answer. Publishes nothing; the conversation does not change.",
        ),
    },
    "Operate and repair": {
        "calls": LazyCommand(
            "calls",
            "List and settle open function calls: running, waiting for a person, or ambiguous.",
        ),
        "doctor": LazyCommand(
            "doctor.command",
            "Check the whole installation, and print each problem with its meaning and its remedy.",
            extras=("services",),
        ),
        "parked": LazyCommand(
            "repair.parked",
            "List parked conversations: a frame could not be folded, so later frames are stored but not applied.",
            extras=("services",),
        ),
        "unpark": LazyCommand(
            "repair.parked",
            "Resume a parked conversation: fold its stored frames in order, after the cause is fixed.",
            extras=("services",),
        ),
        "rebuild": LazyCommand(
            "audit.rebuild",
            "Fold conversations again and compare them with their tables; with --apply, replace what differs.",
            extras=("services",),
        ),
        "recover": LazyCommand(
            "repair.recover",
            "Recover after the frames topic lost records or was recreated.",
            extras=("services",),
        ),
        "dlq": LazyCommand(
            "repair.dlq",
            "Inspect and republish dead letters: records that are not valid frames, kept byte for byte.",
        ),
    },
    "Audit, export, erase": {
        "verify": LazyCommand(
            "audit.verify", "Verify that stored conversations, proofs and exports were not altered."
        ),
        "heads": LazyCommand(
            "audit.heads",
            "Compute the Merkle root over the heads of all conversations.",
            extras=("services",),
        ),
        "prove": LazyCommand(
            "audit.prove",
            "Write a proof of a conversation: its frames as stored, and their path to a Merkle root.",
            extras=("services",),
        ),
        "export": LazyCommand(
            "transfer.export_files",
            "Export conversations to a file.",
            extras=("services",),
        ),
        "import": LazyCommand(
            "transfer.import_files",
            "Import an exported file: same frames, same hash chain.",
            extras=("services",),
        ),
        "erase": LazyCommand("erase.command", "Erase a conversation permanently, and print the receipt."),
    },
    "Set up and measure": {
        "migrate": LazyCommand(
            "migrate",
            "Migrate the database schema to this release. Idempotent.",
            extras=("services",),
        ),
        "topics": LazyCommand("topics", "List the topics with their configuration problems."),
        "token": LazyCommand("token", "Create, list and revoke access tokens of the gateway."),
        "config": LazyCommand(
            "config", "Show every setting with its value, source and description. Secrets are hidden."
        ),
        "asyncapi": LazyCommand(
            "asyncapi",
            "Print the AsyncAPI 3.0 document of the topics as JSON: every frame, effect and header.",
        ),
        "bench": LazyCommand(
            "bench",
            "Measure performance. Each figure is compared with a yardstick measured in the same run; most have a "
            "goal.",
            extras=("services", "embedded"),
        ),
    },
}
"""All commands by group title, in the order in which help lists them."""

COMMANDS = {name: command for group in GROUPS.values() for name, command in group.items()}


DISK_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}
"""Errors of a stream that is redirected to a file."""


def main() -> None:
    """Run the command that `sys.argv` names, and exit with its exit code."""
    # The shell closed them (`<&-`, `>&-`, `2>&-`): there is no input, and nobody reads the output.
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Characters that the terminal's encoding lacks are escaped instead of raising an error.
            stream.reconfigure(errors="backslashreplace")
    try:
        application()(prog_name="frameledger")
    except OSError as error:
        if error.errno not in DISK_ERRORS or error.filename is not None:
            raise
        # What is left in the buffer would raise the same error when the process ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(f"The output cannot be written: {error.strerror}.")


def application() -> typer.Typer:
    """Returns a new Typer app with all commands. Their modules are imported when they are called."""
    app = typer.Typer(
        cls=group_of(GROUPS),
        help="An event-sourced context store for LLM conversations.",
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"]},
        **STYLE,
    )
    app.callback()(_options)
    return app


def _say_version(is_requested: bool) -> None:
    if is_requested:
        from importlib.metadata import version

        typer.echo(f"frameledger {version('frameledger')}")
        raise typer.Exit


def _options(
    _: Annotated[
        bool,
        typer.Option("--version", callback=_say_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """Options before the name of a command."""
