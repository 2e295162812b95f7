"""The connection as uvicorn serves it, with a way to cut it off.

A server closes a connection once its client has taken what is in the buffer; a client that takes nothing would keep
connection and buffer for as long as it likes.
"""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

EXTENSION = "frameledger.abort"


class AbortableProtocol(HttpToolsProtocol):
    """Gives every request the extension `EXTENSION`."""

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self.scope["extensions"] = {EXTENSION: {"abort": self.transport.abort}}


def abort(scope: Any) -> bool:
    """Cut the connection of a request off. Returns whether its server can."""
    extension = scope.get("extensions", {}).get(EXTENSION)
    if extension is None:
        return False
    extension["abort"]()
    return True
