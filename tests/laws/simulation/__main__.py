"""Runs the simulation: `python -m tests.laws.simulation 7` prints the whole trace of seed 7, `... 0 20000` runs many
seeds and prints the end of the trace of the first one that breaks a promise.
"""

import sys
import time

from tests.laws.simulation.play import Play, play
from tests.laws.simulation.world import PromiseBrokenError

REPORT_EVERY = 1_000


def main(arguments: list[str]) -> int:
    """Returns the exit code: 1 if a promise is broken."""
    if len(arguments) == 1:
        one = Play(int(arguments[0]))
        try:
            one.run()
        finally:
            print("\n".join(one.world.trace))
        return 0
    first, beyond = map(int, arguments)
    began = time.monotonic()
    for seed in range(first, beyond):
        try:
            play(seed)
        except PromiseBrokenError as error:
            print(f"Seed {seed}: {error}", file=sys.stderr)
            return 1
        if (seed + 1) % REPORT_EVERY == 0:
            print(
                f"{seed + 1 - first} conversations, no promise broken, {time.monotonic() - began:.0f} s",
                flush=True,
            )
    return 0


sys.exit(main(sys.argv[1:]))
