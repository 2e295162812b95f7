"""The command `frameledger`, also as `python -m frameledger_services`. Without its extras it says what to install."""

import atexit
import gc
import sys
from collections.abc import Callable

from frameledger_services import extras
from frameledger_services.forked_command import BecomeCommand

OBJECTS_BETWEEN_COLLECTIONS = 50_000

INTERRUPTED = 130
"""The exit code in shells for a command that SIGINT ended."""


def main() -> None:
    """Run the command line. A missing extra is reported as one sentence on standard error, with exit code 1.

    Ctrl-C ends it with exit code 130, also while it is imported.
    """
    _reduce_garbage_collection()
    try:
        with extras.needed():
            from frameledger_services.cli import main as command_line

            _run(command_line)
    except extras.MissingExtraError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _run(command_line: Callable[[], None]) -> None:
    """Run it with this process's arguments; in a process that `up` forked, with the arguments that it was given."""
    while True:
        try:
            command_line()
        except BecomeCommand as another:
            sys.argv[1:] = another.words
        else:
            return


def _reduce_garbage_collection() -> None:
    """Reduce garbage collection. A command imports hundreds of modules and ends: a collection at every 700 new objects,
    and a full one at the end, took a third of the processor time of most commands."""
    gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS, 20, 20)
    # The rest is freed with the process.
    atexit.register(gc.freeze)


if __name__ == "__main__":
    main()
