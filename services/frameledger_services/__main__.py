"""The command `frameledger`, also as `python -m frameledger_services`. It is there without the extras that it needs."""

import sys

from frameledger_services import extras


def main() -> None:
    """Run the command line. A missing extra is one sentence on standard error, and exit code 1."""
    try:
        with extras.needed():
            from frameledger_services.cli import main as command_line

            command_line()
    except extras.MissingExtraError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
