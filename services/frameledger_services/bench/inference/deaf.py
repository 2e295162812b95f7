"""An inference worker that receives no cancellations, as if `llm.cancellations` were lost. Run as a process."""

from __future__ import annotations

import asyncio
from typing import Any

from frameledger_services import process
from frameledger_services.inference.service import InferenceService
from frameledger_services.providers import plugins
from frameledger_services.settings import Settings
from frameledger_services.work import session


async def _ignore_cancellations(_settings: Any, _topic: str, _tell: Any, following: asyncio.Event) -> None:
    following.set()
    await asyncio.Event().wait()


if __name__ == "__main__":
    # The product has no setting for this.
    vars(session).update(follow=_ignore_cancellations)
    settings = Settings.from_env(look_for_running=False)
    model = plugins.create(settings.inference_provider or "openai", settings)
    process.run_service(InferenceService(settings, model, service=settings.inference_service).run)
