"""What Python compiles is kept, also where it is told not to: some containers are.

Without it each process of a run compiles every module of ours that it imports, and a worker of xdist every test: most
commands take twice the time, and a whole run starts a thousand processes.
"""

import os
import sys

VARIABLE = "PYTHONDONTWRITEBYTECODE"


def keep() -> None:
    """Let this process and those that it starts write bytecode from now on."""
    os.environ.pop(VARIABLE, None)
    sys.dont_write_bytecode = False
