"""Adds the capture handlers to the processors of a pipeline, which it recognizes by the names of their classes."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from frameledger_services.pipecat.capture import Capture
from frameledger_services.pipecat.captured_frame import ASSISTANT, LLM, OUTPUT, USER, Model, ModelService
from frameledger_services.pipecat.intercepted import on_processing, on_pushing
from frameledger_services.pipecat.values import model_of

logger = logging.getLogger("frameledger.pipecat")

_AGGREGATOR = "LLMContextAggregator"


class Hooks:
    """Adds the handlers of one observer."""

    def __init__(self, context_id: str, capture: Capture) -> None:
        self._context_id = context_id
        self._capture = capture
        self._hooked: set[int] = set()

    def hook(self, pipeline: Any) -> list[Any]:
        """Add handlers to the processors of a pipeline that have none yet. Returns all its processors."""
        processors = all_processors(pipeline)
        new = [one for one in processors if id(one) not in self._hooked]
        self._hooked.update(map(id, new))
        self._find_context(pipeline, [one for one in new if is_a(one, _AGGREGATOR)])
        self._capture.speaks = _is_spoken(processors, self._capture.context)
        for processor in new:
            self._hook(processor)
        return processors

    def _find_context(self, pipeline: Any, aggregators: Sequence[Any]) -> None:
        capture = self._capture
        is_chosen = capture.context is not None
        if aggregators and not is_chosen:
            capture.follow(_outermost(pipeline, _AGGREGATOR).context)
        others = [one for one in aggregators if one.context is not capture.context]
        capture.other_contexts += [one.context for one in others]
        if others and not is_chosen:
            logger.error(
                "%s: %s uses another context, which is not recorded: an observer records one context. Choose it with "
                "FrameledgerObserver(..., context=), and add another observer, with its own id and context, for the "
                "other one.",
                self._context_id,
                others[0],
            )
        elif others and len(others) == len(aggregators):
            logger.error(
                "%s: %s uses another context, and no processor uses the recorded one, which was passed to the "
                "observer or returned by restore().",
                self._context_id,
                others[0],
            )

    def _hook(self, processor: Any) -> None:
        service = None
        if is_a(processor, _AGGREGATOR):
            if processor.context is not self._capture.context:
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


def all_processors(pipeline: Any) -> list[Any]:
    """Returns the processors of a pipeline and of its nested pipelines, in order."""
    processors: list[Any] = []
    for one in pipeline.processors:
        processors += [one, *all_processors(one)]
    return processors


def is_a(processor: Any, name: str) -> bool:
    """Returns whether it is of the Pipecat class with this name. Importing the speech classes would take seconds."""
    return any(one.__name__ == name for one in type(processor).__mro__)


def _outermost(pipeline: Any, name: str) -> Any:
    """Returns the least nested processor of this class, the first of several: a classifier is in a branch."""
    level = [pipeline]
    while level:
        level = [inside for one in level for inside in one.processors]
        for processor in level:
            if is_a(processor, name):
                return processor
    return None


def _is_spoken(processors: Sequence[Any], context: Any) -> bool:
    """Returns whether the answers to this context are spoken: a speech service is between the two aggregators."""
    places = {
        one.role: place
        for place, one in enumerate(processors)
        if is_a(one, _AGGREGATOR) and one.context is context
    }
    between = processors[places.get("user", 0) : places.get("assistant", 0)]
    return any(is_a(one, "TTSService") for one in between)


def _service(llm: Any) -> ModelService:
    name = type(llm).__name__
    provider = name.removesuffix("LLMService").removesuffix("Service") or name
    provider = provider.lower()
    return ModelService(provider, llm, Model(provider, model_of(llm)))
