"""Publishes the frames of one run, under one claim."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from frameledger.frames import AnyFrame
from frameledger.ids import ContextId
from frameledger_services import logs, transient, work
from frameledger_services.claims import ClaimedRun

_log = logs.get_logger("inference")


class RunPublisher:
    """Publishes a run's frames, with the frame that opened the run as their cause.

    Like frames of calls, frames that the broker does not accept are published again until it does, or until the lease
    ends: an outage of the broker costs no attempt, and the model is not called again for an answer that it has already
    given.
    """

    def __init__(self, publisher: work.WorkerPublisher, run: ClaimedRun) -> None:
        self._publisher = publisher
        self._run = run
        self.if_released: work.Ending = "untried"
        """What happens to the claim if the run is abandoned: once anything was published, this counts as an attempt."""

    async def publish(self, context_id: ContextId, frames: Sequence[AnyFrame]) -> None:
        """Returns once the frames are on the log. Raises `TooLargeError` and ValueError for frames that can never be
        accepted, and `LeaseLostError`."""
        # Even if it fails: the frames may arrive.
        self.if_released = "release"
        await work.publish_until_accepted(
            partial(self._publisher.publish, context_id, *frames, causation_id=self._run.causation_id),
            on_refused=self._refused,
            on_outage=self._not_published,
        )

    def _refused(self, error: Exception) -> None:
        _log.error("run.frames_refused", **self._about(error))

    def _not_published(self, error: Exception) -> None:
        _log.warning("run.frames_not_published", **self._about(error))

    def _about(self, error: Exception) -> dict[str, str]:
        return {
            "context_id": self._run.context_id,
            "run_id": self._run.run_id,
            "reason": transient.reason(error),
        }
