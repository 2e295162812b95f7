"""Recognises frames that arrive after an erasure and belong to an erased life (RA5.lives). The projector leaves them
out.

Audits apply the same rule. With the state at a frame they decide like the projector; without it they use the state at
the beginning of the life, which has no runs and no calls. So they leave out every frame that the projector left out,
and perhaps others.
"""

from __future__ import annotations

from datetime import datetime

from frameledger.evolve.erasure import beginning, is_of_an_earlier_life, names_an_erased_version
from frameledger.evolve.state import State
from frameledger.frames import LLMContextEraseFrame
from frameledger.headers import originally_logged_ms
from frameledger.ids import ContextId, Version
from frameledger.record import LoggedFrame, Record
from frameledger_services.projector.row_values import at
from frameledger_services.store.erasures import Beginning


def is_late(state: State, erased_at: datetime | None, logged: LoggedFrame) -> bool:
    """Whether a frame belongs to a life before the one that has this state and began at this time."""
    if state.erased is None or isinstance(logged.frame, LLMContextEraseFrame):
        return False
    return is_of_an_earlier_life(state, logged.frame) or was_logged_before(erased_at, logged.record)


def is_late_whatever_is_known(state: State, erased_at: datetime | None, logged: LoggedFrame) -> bool:
    """The same for a state that may not have the newest runs and calls of the life, such as that of a parked
    conversation. True only for frames that are late by their own content or by the time of their record.

    Other frames are stored as parked. When they are folded, those about a run or a call of the erased life are ignored.
    """
    if state.erased is None or isinstance(logged.frame, LLMContextEraseFrame):
        return False
    return names_an_erased_version(state, logged.frame) or was_logged_before(erased_at, logged.record)


def may_be_late(begins: Beginning, logged: LoggedFrame) -> bool:
    """Whether a frame may have been left out in the life with this beginning, when nothing else about that life is
    available."""
    state = beginning(ContextId(begins.context_id), Version(begins.version))
    return is_late(state, begins.at, logged)


def was_logged_before(erased_at: datetime | None, record: Record) -> bool:
    """Whether this is the copy of a record that had been logged in another partition before the erasure."""
    if erased_at is None or not record.headers:
        return False
    original = originally_logged_ms(dict(record.headers))
    return original is not None and at(original) <= erased_at
