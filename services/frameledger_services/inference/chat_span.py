"""The span of one attempt of a run: the requested model, the worker, the time to the first token, and the usage. No
content."""

from __future__ import annotations

import asyncio
from time import monotonic
from types import TracebackType
from typing import Any, Self

from frameledger.frames import AnyFrame, LLMFullResponseEndFrame, Usage
from frameledger_services.claims import ClaimedRun
from frameledger_services.providers.errors import ProviderError
from frameledger_services.providers.request import Request
from frameledger_services.providers.service import LLMService
from frameledger_services.telemetry import names, tracing
from frameledger_services.telemetry.message_spans import of_context
from frameledger_services.telemetry.tracing import Value

MAX_TOKENS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
"""The names of the limit of output tokens in a request."""


class ChatSpan:
    """The span, which is current during the attempt: frames that are published then belong to it. A cancellation means
    that the answer was cut short, which is not an error."""

    def __init__(self, run: ClaimedRun, model: LLMService[Any], request: Request | ProviderError) -> None:
        built_request = request if isinstance(request, Request) else None
        self._span = tracing.start(
            names.CHAT if built_request is None else f"{names.CHAT} {built_request.model}",
            "client",
            attributes=_attributes(run, model, built_request) if tracing.is_possible() else None,
        )
        self._asked_at: float | None = None
        self._began = False

    def record_request(self) -> None:
        """Record that a request is being sent. Only the first one of an attempt counts."""
        if self._asked_at is None:
            self._asked_at = monotonic()

    def record_frame(self, frame: AnyFrame) -> None:
        """Record a frame of the answer. Called for every frame."""
        if not self._span.is_recording:
            return
        if not self._began and self._asked_at is not None:
            self._began = True
            self._span.set(names.GEN_AI_RESPONSE_TIME_TO_FIRST_CHUNK, monotonic() - self._asked_at)
        if isinstance(frame, LLMFullResponseEndFrame) and frame.finish_reason is not None:
            self._span.set(names.GEN_AI_RESPONSE_FINISH_REASONS, [frame.finish_reason])
        self.record_usage(getattr(frame, "usage", None))

    def record_usage(self, usage: Usage | None) -> None:
        """Record the usage that the provider reports; the newest counts."""
        if usage is None or not self._span.is_recording:
            return
        for name, count in (
            (names.GEN_AI_USAGE_INPUT_TOKENS, usage.input_tokens),
            (names.GEN_AI_USAGE_OUTPUT_TOKENS, usage.output_tokens),
            (names.GEN_AI_USAGE_CACHE_READ_INPUT_TOKENS, usage.cache_read_tokens),
            (names.GEN_AI_USAGE_CACHE_WRITE_INPUT_TOKENS, usage.cache_write_tokens),
            (names.GEN_AI_USAGE_REASONING_OUTPUT_TOKENS, usage.reasoning_tokens),
        ):
            self._span.set(name, count)

    def record_failure(self, code: str) -> None:
        """Record that the attempt failed, with the code of its error."""
        self._span.fail(code)

    def __enter__(self) -> Self:
        self._span.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, asyncio.CancelledError):
            self._span.set(names.INTERRUPTED, True)
        self._span.__exit__(kind, error, traceback)


def _attributes(run: ClaimedRun, model: LLMService[Any], request: Request | None) -> dict[str, Value | None]:
    attributes: dict[str, Value | None] = {
        names.GEN_AI_OPERATION_NAME: names.CHAT,
        names.GEN_AI_PROVIDER_NAME: model.provider,
        names.RUN_ID: run.run_id,
        **of_context(run.context_id, run.version),
    }
    if request is not None:
        body = request.body
        address, port = model.server_address or (None, None)
        attributes |= {
            names.GEN_AI_REQUEST_MODEL: request.model,
            names.GEN_AI_REQUEST_STREAM: True,
            names.GEN_AI_REQUEST_TEMPERATURE: _number(body.get("temperature")),
            names.GEN_AI_REQUEST_MAX_TOKENS: next(
                (limit for name in MAX_TOKENS if (limit := _number(body.get(name))) is not None), None
            ),
            names.REQUEST_SHA256: request.sha256,
            names.SERVER_ADDRESS: address,
            names.SERVER_PORT: port,
        }
    return attributes


def _number(value: object) -> float | int | None:
    return value if isinstance(value, int | float) else None
