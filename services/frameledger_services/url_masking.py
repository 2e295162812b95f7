"""URLs as they are displayed and logged: without user and password."""

from __future__ import annotations

import re

HIDDEN = "********"

_CREDENTIALS = re.compile(r"(?<=://)[^/?#\s]*@")


def without_credentials(text: str) -> str:
    """Returns a text with stars in place of everything before the host in each of its URLs."""
    return _CREDENTIALS.sub(f"{HIDDEN}@", text)
