"""A Pipecat application's conversations on the log, and back in another process: `FrameledgerObserver`; answered by our
inference workers: `FrameledgerLLMService`.

    ledger = FrameledgerObserver("call-7")
    context = await ledger.restore(tools=[get_weather])  # instead of LLMContext(tools=[...])
    worker = PipelineWorker(pipeline, observers=[ledger])

Needs the extra `pipecat`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from frameledger_services.pipecat.llm import FrameledgerLLMService
    from frameledger_services.pipecat.observer import FrameledgerObserver, FramesLostError
    from frameledger_services.pipecat.restore import Restored

__all__ = ["FrameledgerLLMService", "FrameledgerObserver", "FramesLostError", "Restored"]

if not TYPE_CHECKING:  # a module with `__getattr__` has every name there is, for a type checker
    # Imported when used: what is pure here works without Pipecat, which is half a gigabyte.
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
