"""A stored question, and the version at which its answer begins."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AskedQuestion:
    """A question that is stored in the conversation."""

    context_id: str
    version: int
    """The version of its frame. The answer comes after it."""

    since: int | None = None
    """The version that announced the calls that it answers, some of which may still be open."""

    is_own: bool = True
    """Whether this request asked it, now or when it was sent earlier. Otherwise another client's request did."""
