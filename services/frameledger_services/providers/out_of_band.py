"""Out-of-band inference: takes a context, returns text, publishes nothing. Uses the provider of the settings."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from frameledger.context import LLMContext
from frameledger_services.providers import plugins
from frameledger_services.providers.backoff import backoff
from frameledger_services.providers.errors import ProviderUnavailableError
from frameledger_services.providers.service import LLMService
from frameledger_services.providers.settings import LLMSettings
from frameledger_services.settings import Settings

_T = TypeVar("_T")

LONGEST_WAIT = 30.0
"""Maximum seconds before a retry. A provider that asks for a longer wait has failed."""


class OutOfBand:
    """Runs out-of-band inference, concurrently. The provider is created on first use."""

    def __init__(
        self, settings: Settings, *, provider: str | None = None, over: LLMSettings | None = None
    ) -> None:
        """`provider` and `over` take precedence over the settings."""
        self._settings = settings
        self._provider = provider or settings.inference_provider
        self._over = over
        self._service: LLMService[Any] | None = None

    @property
    def service(self) -> LLMService[Any]:
        """The provider. Raises `NoSuchProviderError`, also if none is configured."""
        if self._service is None:
            if self._provider is None:
                raise plugins.NoSuchProviderError(
                    "No provider is configured. Set FRAMELEDGER_INFERENCE_PROVIDER to one of: "
                    f"{', '.join(plugins.known())}; or pass --provider on a command line."
                )
            self._service = plugins.create(self._provider, self._settings, over=self._over)
        return self._service

    async def run_inference(
        self, context: LLMContext, max_tokens: int | None = None, system_instruction: str | None = None
    ) -> str | None:
        """As `LLMService.run_inference`, with retries as in `retrying`."""
        service = self.service
        return await self.retrying(lambda: service.run_inference(context, max_tokens, system_instruction))

    async def retrying(self, ask: Callable[[], Awaitable[_T]]) -> _T:
        """Returns the result of `ask`. While the provider is temporarily unavailable, `ask` is retried, at most
        `inference_retries` times. Raises other `ProviderError`s at once, and the last one."""
        tries = 0
        while True:
            try:
                return await ask()
            except ProviderUnavailableError as error:
                retry_after = error.retry_after or 0.0
                if tries == self._settings.inference_retries or retry_after > LONGEST_WAIT:
                    raise
            await asyncio.sleep(max(retry_after, backoff(tries, first=0.5, longest=8.0)))
            tries += 1

    async def close(self) -> None:
        """Close the provider, if it was created. Safe to call twice."""
        if self._service is not None:
            await self._service.cleanup()
