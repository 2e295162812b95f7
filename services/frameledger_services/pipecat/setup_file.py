"""A file for `PIPECAT_SETUP_FILES`: records every pipeline of a program without changing its code.

    PIPECAT_SETUP_FILES=$(python -m frameledger_services.pipecat.setup_file) python bot.py

The id of the conversation is `PIPECAT_CONTEXT_ID` of the environment, else the worker's `conversation_id`, else a new
id, which is logged. Conversations are not restored: that needs the application's context.
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
