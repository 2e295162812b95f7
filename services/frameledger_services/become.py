"""What a forked process raises to leave all that its parent was doing, and be another command of ours.

Beside the rooms, since the entry point catches it, which is there without any extra.
"""

from __future__ import annotations

from collections.abc import Sequence


class Become(BaseException):
    """This process, a copy of another one, is from now on `frameledger` with these words. `__main__` catches it when
    everything between has been left, so that the command ends as one does that was started."""

    def __init__(self, words: Sequence[str]) -> None:
        super().__init__(*words)
        self.words = tuple(words)
