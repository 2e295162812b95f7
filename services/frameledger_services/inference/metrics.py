"""Metrics of requests to models, named by the GenAI conventions."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable

from frameledger.frames import AnyFrame, LLMFullResponseEndFrame, LLMTextFrame, Usage
from frameledger_services.providers.errors import ProviderError
from frameledger_services.providers.request import Request
from frameledger_services.telemetry import metrics as listed
from frameledger_services.telemetry.metrics_recorder import NO_METRICS, Metrics

_TOKENS = {
    "input_tokens": listed.INPUT_TOKENS,
    "output_tokens": listed.OUTPUT_TOKENS,
    "cache_read_tokens": listed.CACHE_READ_TOKENS,
    "cache_write_tokens": listed.CACHE_WRITE_TOKENS,
    "reasoning_tokens": listed.REASONING_TOKENS,
}

CANCELLED = "cancelled"
"""The answer was interrupted or its worker stopped, which is not a failure of the provider."""


class InferenceMetrics:
    """Counts the requests of one inference service."""

    def __init__(self, metrics: Metrics = NO_METRICS) -> None:
        self._metrics = metrics
        metrics.declare(listed.INFERENCE_DURATION, listed.INFERENCE_FIRST_CHUNK, *_TOKENS.values())

    async def measured(
        self, request: Request, frames: AsyncGenerator[AnyFrame, None], pushed: Callable[[], Usage | None]
    ) -> AsyncGenerator[AnyFrame, None]:
        """Yields the frames of an answer unchanged, and counts the answer when it ends. Closing it closes the answer.

        `pushed` returns the latest usage that the provider published separately, which counts for an answer that is cut
        off.
        """
        # No provider reports another model name in its answer: the response model is the requested model.
        of = request.provider, request.model, request.model
        began, has_begun, usage, error_type = time.perf_counter(), False, None, CANCELLED
        # The usage of an earlier request of the attempt.
        before = pushed()
        try:
            async for frame in frames:
                if not has_begun:
                    has_begun = True
                    first = self._metrics.histogram(listed.INFERENCE_FIRST_CHUNK, *of)
                    first.observe(time.perf_counter() - began)
                if isinstance(frame, LLMTextFrame | LLMFullResponseEndFrame):
                    usage = frame.usage or usage
                    if isinstance(frame, LLMFullResponseEndFrame):
                        error_type = ""
                yield frame
        except ProviderError as error:
            error_type = error.code
            raise
        except Exception:
            error_type = "provider_failed"
            raise
        finally:
            if usage is None and (latest := pushed()) is not before:
                usage = latest
            self._count(of, error_type, time.perf_counter() - began, usage)
            await frames.aclose()

    def _count(self, of: tuple[str, str, str], error_type: str, seconds: float, usage: Usage | None) -> None:
        self._metrics.histogram(listed.INFERENCE_DURATION, *of, error_type).observe(seconds)
        if usage is not None:
            for name, metric in _TOKENS.items():
                if count := getattr(usage, name):
                    self._metrics.counter(metric, *of).inc(count)
