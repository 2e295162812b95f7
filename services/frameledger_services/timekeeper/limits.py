"""The time limits of every rule, from the settings. None switches a rule off."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from frameledger_services.settings import Settings


@dataclass(frozen=True, slots=True)
class Limits:
    """In seconds; retention in days."""

    run_unclaimed: float | None
    run_silent: float | None
    call: float | None
    """For calls without a deadline of their own. None also disables the deadlines of those that have one."""

    call_grace: float
    """How long after a deadline the call's own worker may still settle it."""

    call_unserved: float | None
    call_unstarted: float | None
    interrupted_call: float | None
    lost_call: float | None
    waiting_calls: bool
    client_call: float | None
    user_silent: float | None
    final_words: float | None
    bot_silent: float | None
    keep_claims_days: float | None
    keep_workers_days: float | None

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Returns the limits from the settings, in which 0 means off."""
        return cls(
            run_unclaimed=settings.timekeeper_run_unclaimed_secs or None,
            run_silent=settings.timekeeper_run_silent_secs or None,
            call=settings.timekeeper_call_secs or None,
            call_grace=settings.timekeeper_call_grace_secs,
            call_unserved=settings.timekeeper_call_unserved_secs or None,
            call_unstarted=settings.timekeeper_call_unstarted_secs or None,
            interrupted_call=settings.timekeeper_interrupted_call_secs or None,
            lost_call=settings.timekeeper_lost_call_secs or None,
            waiting_calls=settings.timekeeper_waiting_calls,
            client_call=settings.timekeeper_client_call_secs or None,
            user_silent=settings.timekeeper_user_silent_secs or None,
            final_words=settings.timekeeper_final_words_secs or None,
            bot_silent=settings.timekeeper_bot_silent_secs or None,
            keep_claims_days=settings.timekeeper_keep_claims_days or None,
            keep_workers_days=settings.timekeeper_keep_workers_days or None,
        )
