"""The measured workers and their configuration."""

from __future__ import annotations

from typing import Any

from pydantic import SecretStr

ANSWERING = ("frameledger_services", "run", "inference")
DEAF = ("frameledger_services.bench.inference.deaf",)
"""One that hears no cancellation."""


def settings_for(base_url: str) -> dict[str, Any]:
    """What has to be set so that a worker answers with the model server at this address."""
    return {
        "inference_provider": "openai",
        "inference_model": "bench",
        "openai_base_url": base_url,
        "openai_api_key": SecretStr("bench"),
    }
