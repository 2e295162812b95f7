"""Adds the capture handlers to the processors of a pipeline, which are told by the names of their classes."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from frameledger_services.pipecat.capture import ASSISTANT, LLM, OUTPUT, USER, Capture
from frameledger_services.pipecat.captured_frame import ModelService
from frameledger_services.pipecat.intercepted import on_processing, on_pushing

logger = logging.getLogger("frameledger.pipecat")


class Hooks:
    """Adds the handlers of one observer."""

    def __init__(self, context_id: str, capture: Capture) -> None:
        self._context_id = context_id
        self._capture = capture
        self._hooked: set[int] = set()

    def hook(self, processors: Sequence[Any]) -> None:
        """Add handlers to the processors of a pipeline that have none yet."""
        self._capture.speaks = any(is_a(one, "TTSService") for one in processors)
        for processor in processors:
            if id(processor) not in self._hooked:
                self._hooked.add(id(processor))
                self._hook(processor)

    def _hook(self, processor: Any) -> None:
        service = None
        if is_a(processor, "LLMContextAggregator"):
            if not self._is_ours(processor):
                return
            at = USER if processor.role == "user" else ASSISTANT
        elif is_a(processor, "LLMService"):
            at, service = LLM, _service(processor)
        elif is_a(processor, "BaseOutputTransport"):
            at = OUTPUT
        else:
            return
        on_pushing(processor, self._capture.handlers(at, pushes=True, service=service))
        if at != OUTPUT:
            on_processing(processor, self._capture.handlers(at, pushes=False, service=service))

    def _is_ours(self, aggregator: Any) -> bool:
        context = aggregator.context
        if self._capture.context is None:
            self._capture.follow(context)
        if self._capture.context is context:
            return True
        logger.error(
            "%s: %s uses another context, which is not recorded: an observer records one context. Add an observer with "
            "an id of its own for the other context. After restore(), use the context that it returned.",
            self._context_id,
            aggregator,
        )
        return False


def all_processors(pipeline: Any) -> list[Any]:
    """Returns the processors of a pipeline and of its nested pipelines, in order."""
    processors: list[Any] = []
    for one in pipeline.processors:
        processors += [one, *all_processors(one)]
    return processors


def is_a(processor: Any, name: str) -> bool:
    """Returns whether it is of the Pipecat class of this name. Importing the speech classes takes seconds."""
    return any(one.__name__ == name for one in type(processor).__mro__)


def settings_of(service: Any) -> Any:
    """Returns the settings of a service. Pipecat 1.8 has no property for them."""
    return getattr(service, "settings", None) or getattr(service, "_settings", None)


def _service(llm: Any) -> ModelService:
    model = getattr(settings_of(llm), "model", None)
    name = type(llm).__name__
    provider = name.removesuffix("LLMService").removesuffix("Service") or name
    return ModelService(provider.lower(), model if isinstance(model, str) else None)
