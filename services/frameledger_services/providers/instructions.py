"""The system instruction of a service: composed for every request, never stored."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Instructions:
    """What stands around the caller's own prompt."""

    appended: tuple[str, ...] = ()
    """Texts of components that own the service, in the order in which they came."""

    turn_completion: str = ""
    """How the model shall tell an unfinished turn. Empty: judging speech is a client's work."""

    def appending(self, text: str) -> Instructions:
        return replace(self, appended=(*self.appended, text))

    def around(self, base: str | None, *, cancel_tools: str = "") -> str | None:
        """Base, appended texts in order, turn completion, guidance for cancel tools; None if all are blank."""
        return joined([base or "", *self.appended, self.turn_completion, cancel_tools])


def joined(texts: Iterable[str]) -> str | None:
    """The texts that are not blank, with a blank line between them; None if there is none."""
    return "\n\n".join(text for text in texts if text.strip()) or None
