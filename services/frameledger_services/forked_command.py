"""The exception by which a forked process leaves its parent's work and runs another `frameledger` command.

It is outside the rooms because the entry point, which works without any extra, catches it.
"""

from __future__ import annotations

from collections.abc import Sequence


class BecomeCommand(BaseException):
    """Raised in a forked process: from now on it is `frameledger` with these arguments.

    `__main__` catches it after everything in between was unwound, so the command ends like one that was started.
    """

    def __init__(self, words: Sequence[str]) -> None:
        super().__init__(*words)
        self.words = tuple(words)
