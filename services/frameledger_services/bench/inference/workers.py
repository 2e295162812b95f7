"""The measured workers and their configuration."""

from __future__ import annotations

from typing import Any

from pydantic import SecretStr

ANSWERING = ("frameledger_services", "run", "inference")
DEAF = ("frameledger_services.bench.inference.deaf",)
"""A worker that receives no cancellations."""


def settings_for(base_url: str) -> dict[str, Any]:
    """Returns the settings with which a worker uses the model server at this address."""
    return {
        "inference_provider": "openai",
        "inference_model": "bench",
        "openai_base_url": base_url,
        "openai_api_key": SecretStr("bench"),
    }
