"""Publishing the frames of one run, under one claim."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from frameledger.frames import AnyFrame
from frameledger.ids import ContextId
from frameledger_services import logs, transient, work
from frameledger_services.claims import ClaimedRun
from frameledger_services.event_log.producer import RecordRefusedError, TooLargeError

RETRY_SECONDS = 0.5
"""Before frames that the broker did not take are published again."""

_log = logs.get_logger("inference")


class RunPublisher:
    """Publishes a run's frames, as caused by the frame that opened the run.

    Frames that the broker does not take are published again until it does, or the lease is over, as those of calls are:
    an outage of the broker costs no attempt, and the model is not asked again for an answer that is here. Nothing comes
    twice or out of order by that, since each frame has an id and the later ones wait. Frames that the broker refuses,
    such as without the right to write, are published again too: an operator may grant it, and is told by an error.
    """

    def __init__(self, publisher: work.Publisher, run: ClaimedRun) -> None:
        self._publisher = publisher
        self._run = run
        self.if_released: work.Ending = "untried"
        """What becomes of the claim if the run is left: once anything was published, this counts as an attempt."""

    async def publish(self, context_id: ContextId, frames: Sequence[AnyFrame]) -> None:
        """Returns once the frames are on the log. Raises `TooLargeError` and ValueError for what is never taken, and
        `LeaseLostError`."""
        # Also if it fails: the frames may arrive.
        self.if_released = "release"
        while True:
            try:
                await self._publisher.publish(context_id, *frames, causation_id=self._run.causation_id)
                return
            except TooLargeError:
                raise
            except RecordRefusedError as error:
                _log.error("run.frames_refused", **self._about(error))
            except transient.BROKER as error:
                _log.warning("run.frames_not_published", **self._about(error))
            await asyncio.sleep(RETRY_SECONDS)

    def _about(self, error: Exception) -> dict[str, str]:
        return {
            "context_id": self._run.context_id,
            "run_id": self._run.run_id,
            "reason": transient.reason(error),
        }
