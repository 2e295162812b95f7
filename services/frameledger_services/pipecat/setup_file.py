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
from weakref import WeakKeyDictionary

logger = logging.getLogger("frameledger.pipecat")

_observers: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
"""The observers of the running workers. Two with the same id would fence each other."""


async def setup_pipeline_worker(worker: Any) -> None:
    """Called by Pipecat for each worker before its processors are set up."""
    from frameledger_services.pipecat.observer import FrameledgerObserver

    configured_id = os.environ.get("PIPECAT_CONTEXT_ID") or getattr(worker, "_conversation_id", None)
    base_id = configured_id or f"pipecat-{uuid4()}"
    numbered = (f"{base_id}-{number}" for number in count(2))
    for other, observer in list(_observers.items()):
        if other.has_finished():
            if observer.context_id.startswith(base_id):
                # A pipeline that never started may still publish its last frames.
                await observer.finish()
            _observers.pop(other, None)
    in_use = {observer.context_id for observer in _observers.values()}
    context_id = next(one for one in chain([base_id], numbered) if one not in in_use)
    observer = _observers[worker] = FrameledgerObserver(context_id)
    worker.add_observer(observer)
    logger.warning("this pipeline is recorded as the conversation %s", context_id)


if __name__ == "__main__":
    print(__file__)
