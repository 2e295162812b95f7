"""The time limits of every rule, from the settings. None switches a rule off."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from frameledger_services.settings import Settings

AFTER_OUTAGE_SECONDS = 60.0
"""The maximum time that publishers have after an outage of the broker. A publication that began during the outage may
take 30 seconds to fail, and is then retried; a worker has to rejoin its consumer group. It is not the whole limit of
each rule: if a broker failed every few minutes, a run would otherwise stay open for ever."""


@dataclass(frozen=True, slots=True)
class TimeLimits:
    """In seconds; the retention of claims and workers in days. None switches a rule off."""

    run_unclaimed: float | None
    run_silent: float | None
    call: float | None
    """For calls without a deadline of their own. None also disables the deadlines of calls that have one."""

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

    def after_outage(self, answers_secs: float) -> Self:
        """Returns the limits that apply once the log has answered for this long, since its last outage or since the
        timekeeper started. Rules that judge by what is missing on the log are off until disconnected publishers have
        had time to publish."""
        if answers_secs >= AFTER_OUTAGE_SECONDS:
            return self
        return replace(
            self,
            run_unclaimed=_since(answers_secs, self.run_unclaimed),
            run_silent=_since(answers_secs, self.run_silent),
            call=_since(answers_secs, self.call),
            call_unserved=_since(answers_secs, self.call_unserved),
            call_unstarted=_since(answers_secs, self.call_unstarted),
            user_silent=_since(answers_secs, self.user_silent),
            final_words=_since(answers_secs, self.final_words),
            bot_silent=_since(answers_secs, self.bot_silent),
        )

    def after_release(self, released_secs: float) -> Self:
        """Returns the limits of a partition whose effects have not been held for this long. Rules for work without a
        claim are off until workers could claim it for the whole limit, because they cannot while effects are held."""
        return replace(
            self,
            run_unclaimed=_since(released_secs, self.run_unclaimed),
            call_unserved=_since(released_secs, self.call_unserved),
            call_unstarted=_since(released_secs, self.call_unstarted),
        )

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


def _since(elapsed_secs: float, limit: float | None) -> float | None:
    return None if limit is None or elapsed_secs < limit else limit
