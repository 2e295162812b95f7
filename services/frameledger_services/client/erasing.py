"""Erasing: the record on the log, and the receipt that the projector writes when it has applied it."""

from __future__ import annotations

from frameledger.errors import RefusedError
from frameledger_services.client.outcomes import PublishedFrame
from frameledger_services.store.erasures import Places, Receipt

__all__ = ["NotErasedError", "Places", "Receipt"]


class NotErasedError(RefusedError):
    """The record that should erase a conversation is on the log, but did not erase it: it was rejected, as `published`
    says, or a projector of an older release stored it as a frame of an unknown type.

    Remedy: If it was rejected, erase again. Otherwise upgrade the projectors, and fold the conversation again with
    `frameledger rebuild --outcome unknown --apply`.
    """

    def __init__(self, context_id: str, published: PublishedFrame) -> None:
        super().__init__(f"{context_id} was not erased: {_because(published)}")
        self.published = published


def _because(published: PublishedFrame) -> str:
    if published.outcome == "rejected":
        return f"the record was rejected ({published.reason}). Erase it again."
    return (
        "a projector of an older release stored the frame as unknown. Upgrade the projectors, then run `frameledger "
        "rebuild --outcome unknown --apply`."
    )
