"""The system instruction of a service. It is composed for every request and never stored."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Instructions:
    """Texts that are added to the caller's own system instruction."""

    appended: tuple[str, ...] = ()
    """Texts of `append_system_instruction`, in the order of the calls."""

    turn_completion: str = ""
    """Tells the model how to mark an unfinished turn. Empty: the client detects turns."""

    def appending(self, text: str) -> Instructions:
        return replace(self, appended=(*self.appended, text))

    def around(self, base: str | None, *, cancel_tools: str = "") -> str | None:
        """Returns base, appended texts, turn completion and guidance for cancel tools; None if all are blank."""
        return joined([base or "", *self.appended, self.turn_completion, cancel_tools])


def joined(texts: Iterable[str]) -> str | None:
    """Returns the texts that are not blank, joined by blank lines; None if there is none."""
    return "\n\n".join(text for text in texts if text.strip()) or None
