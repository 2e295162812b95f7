"""A file for `PIPECAT_SETUP_FILES`: records every pipeline of a program without changing its code.

    PIPECAT_SETUP_FILES=$(python -m frameledger_services.pipecat.setup_file) python bot.py

The id of the conversation is `PIPECAT_CONTEXT_ID` of the environment, else the worker's `conversation_id`, else a new
id. It is logged. If a program runs several pipelines with one id at once, those after the first are numbered: `call-7`,
`call-7-2`. Conversations are not restored: that needs the application's context.
"""

from __future__ import annotations

import logging
import os
from itertools import chain, count
from typing import Any
from uuid import uuid4

logger = logging.getLogger("frameledger.pipecat")

_recorded: set[str] = set()
"""The ids of the pipelines that run. Two with one id would fence each other."""


async def setup_pipeline_worker(worker: Any) -> None:
    """Called by Pipecat for each worker before its processors are set up."""
    from frameledger_services.pipecat.observer import FrameledgerObserver

    said = os.environ.get("PIPECAT_CONTEXT_ID") or getattr(worker, "_conversation_id", None)
    wanted = said or f"pipecat-{uuid4()}"
    numbered = (f"{wanted}-{number}" for number in count(2))
    context_id = next(one for one in chain([wanted], numbered) if one not in _recorded)
    worker.add_observer(FrameledgerObserver(context_id))
    _recorded.add(context_id)
    worker.add_event_handler("on_pipeline_finished", lambda *_: _recorded.discard(context_id))
    logger.warning("this pipeline is recorded as the conversation %s", context_id)


if __name__ == "__main__":
    print(__file__)
