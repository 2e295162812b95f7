"""URLs as they are shown to people and logged: without user and password."""

from __future__ import annotations

import re

HIDDEN = "********"

_CREDENTIALS = re.compile(r"(?<=://)[^/?#\s]*@")


def without_credentials(text: str) -> str:
    """Returns a text with stars in place of what precedes the host in each URL in it."""
    return _CREDENTIALS.sub(f"{HIDDEN}@", text)
