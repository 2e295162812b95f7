"""A release with a newer fold: this one with one changed rule and a higher fold version."""

from contextlib import contextmanager

from frameledger import stored
from frameledger.evolve import evolve
from frameledger.evolve.changes import MessageAppended
from frameledger.values import replace
from frameledger_services.projector import batch_fold, refold, stored_heads

NEWER = stored.FOLD_VERSION + 1

SHOUTED = "quiet"
"""The text of a message that the newer release writes in capitals."""


def shouting(state, frame, *others):
    """The changed rule: this message is appended in capitals."""
    step = evolve(state, frame, *others)
    if not any(
        isinstance(one, MessageAppended) and one.message.get("content") == SHOUTED for one in step.changes
    ):
        return step
    changes = tuple(
        replace(one, message={**one.message, "content": SHOUTED.upper()})
        if isinstance(one, MessageAppended)
        else one
        for one in step.changes
    )
    return replace(step, changes=changes)


def become_newer():
    """Make this process one of the newer release until it ends."""
    vars(stored)["FOLD_VERSION"] = NEWER
    for module in (batch_fold, refold, stored_heads):
        vars(module)["evolve"] = shouting


@contextmanager
def newer_release(monkeypatch):
    """Make this process one of the newer release within the block."""
    with monkeypatch.context() as patched:
        patched.setattr(stored, "FOLD_VERSION", NEWER)
        for module in (batch_fold, refold, stored_heads):
            patched.setattr(module, "evolve", shouting)
        yield
