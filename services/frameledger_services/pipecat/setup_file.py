"""For `PIPECAT_SETUP_FILES`: every pipeline of a program is recorded, with no line of it changed.

    PIPECAT_SETUP_FILES=$(python -m frameledger_services.pipecat.setup_file) python bot.py

A conversation has the id that the environment says in `PIPECAT_CONTEXT_ID`, the worker's `conversation_id`, or a
new one, which is logged. Nothing is restored this way: that takes the application's own context.
"""

from __future__ import annotations

import logging
import os
from typing import Any
from uuid import uuid4

logger = logging.getLogger("frameledger.pipecat")


async def setup_pipeline_worker(worker: Any) -> None:
    """Called by Pipecat for each worker before its processors are set up."""
    from frameledger_services.pipecat.observer import FrameledgerObserver

    said = os.environ.get("PIPECAT_CONTEXT_ID") or getattr(worker, "_conversation_id", None)
    context_id = said or f"pipecat-{uuid4()}"
    worker.add_observer(FrameledgerObserver(context_id))
    logger.warning("this pipeline is recorded as the conversation %s", context_id)


if __name__ == "__main__":
    print(__file__)
