"""The id of a response, which encodes the conversation and the version at which it was requested.

Nothing is stored for it: any gateway finds the response, however old it is. The id is not a secret and grants no
access: its conversation is shown only to callers that may see it.
"""

from __future__ import annotations

import binascii
from base64 import b64decode, urlsafe_b64encode
from dataclasses import dataclass

from frameledger.record import is_context_id

PREFIX = "resp_"
MESSAGE_PREFIX, CALL_PREFIX = "msg_", "fc_"
MAX_CHARACTERS = 512
"""Our own ids are shorter."""


@dataclass(frozen=True, slots=True)
class ResponseId:
    """The conversation of a response, and the version at which it was requested."""

    context_id: str
    version: int
    """The version of the frame that asks."""

    def __str__(self) -> str:
        return PREFIX + self.token

    @property
    def token(self) -> str:
        """The part that is common to the ids of the response's items."""
        return urlsafe_b64encode(f"{self.version}:{self.context_id}".encode()).decode().rstrip("=")


def parse(text: str) -> ResponseId | None:
    """Parse an id. Returns None for text that is not an id."""
    token = text.removeprefix(PREFIX)
    if token == text or len(text) > MAX_CHARACTERS or not text.isascii():
        return None
    try:
        decoded = b64decode(f"{token}{'=' * (-len(token) % 4)}", altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        return None
    version, _, context_id = decoded.partition(":")
    if not version.isdecimal() or not is_context_id(context_id):
        return None
    parsed = ResponseId(context_id, int(version))
    # Each response has exactly one id, so another spelling of it is not an id.
    return parsed if str(parsed) == text and 0 < parsed.version < 2**63 else None


def of_item(item_id: str) -> str | None:
    """Returns the id of the response that has this item, if the item's id has our format."""
    if item_id.startswith(MESSAGE_PREFIX):
        return PREFIX + item_id.removeprefix(MESSAGE_PREFIX)
    if item_id.startswith(CALL_PREFIX):
        return PREFIX + item_id.removeprefix(CALL_PREFIX).rpartition("_")[0]
    return None
