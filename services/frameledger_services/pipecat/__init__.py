"""The Pipecat bridge. `FrameledgerObserver` records a Pipecat application's conversation on the log and restores it in
another process. `FrameledgerLLMService` lets Frameledger's inference workers answer it.

    ledger = FrameledgerObserver("call-7")
    context = await ledger.restore(tools=[get_weather])  # instead of LLMContext(tools=[...])
    worker = PipelineWorker(pipeline, observers=[ledger])

Needs the extra `pipecat`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from frameledger_services.pipecat.errors import TakenOverError

if TYPE_CHECKING:
    from frameledger_services.pipecat.llm import FrameledgerLLMService
    from frameledger_services.pipecat.observer import FrameledgerObserver, FramesLostError
    from frameledger_services.pipecat.restore import Restored

__all__ = ["FrameledgerLLMService", "FrameledgerObserver", "FramesLostError", "Restored", "TakenOverError"]

if not TYPE_CHECKING:  # type checkers accept any name of a module with `__getattr__`
    # Imported on first use: the pure modules work without Pipecat, which needs half a gigabyte of disk.
    _PLACES = {
        "FrameledgerLLMService": "llm",
        "FrameledgerObserver": "observer",
        "FramesLostError": "observer",
        "Restored": "restore",
    }

    def __getattr__(name: str) -> Any:
        if name not in _PLACES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
