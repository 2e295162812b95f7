"""Finds the conversation that two aggregators share: the one of the other side that was created on the same object."""

from __future__ import annotations

from contextlib import suppress
from weakref import ref

from frameledger.aggregators.side import Held, Role
from frameledger.context import HasWire
from frameledger.frames import KnownFrame


class Shared(Held):
    """A conversation for two halves, and the object on which they are created, which is not changed.

    `waits_for` is the role of the half that does not exist yet; None once both exist.
    """

    def __init__(self, context: HasWire, made_on: object, waits_for: Role) -> None:
        super().__init__(context)
        self.made_on = made_on
        self.waits_for: Role | None = waits_for

    def take(self, frame: KnownFrame) -> bool:
        """Fold the frame. While no half receives the answers, every input is enqueued: no frame closes a run, so the
        conversation would stay busy for ever, and `reject` and `coalesce` would lose the user's words."""
        if self.waits_for == "assistant" and "second_input" in type(frame).model_fields:
            frame = frame.model_copy(update={"second_input": "enqueue"})
        return super().take(frame)


# Conversations with one half so far; each is dropped with its aggregator. A list, since its methods are atomic for
# threads.
_waiting: list[ref[Shared]] = []


def _forget(reference: ref[Shared]) -> None:
    with suppress(ValueError):  # its other half was created
        _waiting.remove(reference)


def held_by(role: str | None, context: HasWire, made_on: object) -> Held:
    """Returns the conversation of a new half: one on the same object that lacks this role, otherwise a new one.

    Objects are compared by identity: two equal contexts are two conversations. Without a role the conversation has both
    sides, and is always new. Raises ValueError if two conversations wait, because a wrong guess would show one person's
    words to another; also for a role other than "user" and "assistant".
    """
    if role is None:
        return Held(context)
    if role not in ("user", "assistant"):
        raise ValueError(f"role: an aggregator collects for 'user' or 'assistant', not for {role!r}")
    waiting = [
        (entry, held)
        for entry in list(_waiting)
        if (held := entry()) is not None and held.made_on is made_on and held.waits_for == role
    ]
    if len(waiting) > 1:
        raise ValueError(
            f"{len(waiting)} conversations that began with this object have no half of the {role} yet: "
            "make each on an object of its own, or use LLMContextAggregatorPair"
        )
    for entry, held in waiting:
        _forget(entry)
        held.waits_for = None
        return held
    new = Shared(context, made_on, "assistant" if role == "user" else "user")
    _waiting.append(ref(new, _forget))
    return new
