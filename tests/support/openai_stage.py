"""OpenAI's API in front of a conversation: the official client, a gateway, a scripted model, and functions."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from openai import OpenAI
from tests.bounds import ON_SERVERS
from tests.support import full_pipeline
from tests.support.answerers import QUICK
from tests.support.full_pipeline import FullPipeline
from tests.support.gateway import running
from tests.support.run_broker import Broker
from tests.support.scripted_replies import REPLIES

from frameledger_services.embedded import ports

SCRIPT = {
    "pace": 60,
    "replies": [
        {"when": {"user": "count"}, "say": [{"text": " ".join(f"number-{n}" for n in range(1, 4000))}]},
        {"when": {"user": "hold"}, "say": [{"call": "hold_ferry", "arguments": {"leaves": "06:40"}}]},
        {"when": {"result_of": "hold_ferry"}, "say": [{"text": "He is being asked."}]},
        {"when": {"user": "sketch"}, "say": [{"call": "sketch"}]},
        {"when": {"user": "outline"}, "say": [{"call": "outline"}]},
        {"when": {"result_of": "sketch"}, "say": [{"call": "paint", "arguments": {"colour": "blue"}}]},
        {
            "when": {"result_of": "outline"},
            "say": [{"text": "Now I paint."}, {"call": "paint", "arguments": {"colour": "blue"}}],
        },
        {
            "when": {"user": "seat and a box"},
            "say": [{"call": "keep_seat", "arguments": {"berth": 7}}, {"call": "paint"}],
        },
        {"when": {"result_of": "keep_seat"}, "say": [{"text": "Your seat is kept."}]},
        {"when": {"user": "story"}, "say": [{"text": " ".join(f"word-{n}" for n in range(1, 40))}]},
        {
            "when": {"user": "half"},
            "say": [{"text": "So far so"}, {"fail": "refused_context", "message": "No more."}],
        },
        {"when": {"user": "short"}, "say": [{"text": "Once upon"}], "finish_reason": "length"},
        *REPLIES,
    ],
}

TRAIN = {"role": "user", "content": "Is there a night train?"}
YES = {"role": "assistant", "content": "Yes, at 22:40."}
THANKS = {"role": "user", "content": "Thanks."}


class Stage:
    """A pipeline with a gateway, and the official client."""

    def __init__(self, pipeline: FullPipeline, base_url: str) -> None:
        self.settings = pipeline.settings.model_copy(
            update={"inference_provider": "scripted", "inference_script": pipeline.script}
        )
        self.inference = pipeline.inference
        self.rows = pipeline.rows
        self.until = pipeline.until
        self.context = pipeline.context
        self.base_url = base_url
        self.client = OpenAI(base_url=f"{base_url}/v1", api_key="none", timeout=ON_SERVERS)

    def create(self, messages: list[dict[str, Any]], **more: Any) -> Any:
        """Returns a chat's completion, or its stream."""
        create: Any = self.client.chat.completions.create
        return create(model="frameledger", messages=messages, **more)

    def publish(self, context_id: str, **frame: Any) -> None:
        """Publish a frame by the gateway's own API, and wait until it is folded."""
        url = f"{self.base_url}/v1/contexts/{quote(context_id, safe='')}/frames"
        httpx.post(url, json=frame, headers={"Prefer": "wait"}, timeout=ON_SERVERS).raise_for_status()

    def messages(self, context_id: str) -> list[dict[str, Any]]:
        """Returns the stored messages, without thoughts."""
        return [one for one in self.context(context_id)["messages"] if "role" in one]

    def contents(self, context_id: str) -> list[Any]:
        """Returns what each of them says."""
        return [one["content"] for one in self.messages(context_id)]

    def stored_settings(self, context_id: str) -> dict[str, Any]:
        return dict(self.context(context_id)["settings"])

    def frames(self, context_id: str) -> list[str]:
        """Returns the types of its frames, oldest first."""
        query = "SELECT type FROM frames WHERE context_id = %s ORDER BY version"
        return [kind for (kind,) in self.rows(query, context_id)]

    def calls(self, context_id: str) -> list[tuple[Any, ...]]:
        """Returns name, status and result of each call, in the order of requests."""
        return self.rows(
            "SELECT function_name, status, result FROM tool_calls WHERE context_id = %s "
            "ORDER BY requested_version, ordinal",
            context_id,
        )

    def eras(self, context_id: str) -> int:
        """Returns the number of its histories: each replacement by a client's history adds one."""
        return self._count("SELECT count(*) FROM eras WHERE context_id = %s", context_id)

    def runs(self, context_id: str) -> int:
        """Returns how many times the model was asked."""
        return self._count("SELECT count(*) FROM runs WHERE context_id = %s", context_id)

    def _count(self, query: str, context_id: str) -> int:
        [(number,)] = self.rows(query, context_id)
        return int(number)


@pytest.fixture(scope="module", name="stage")
def openai_stage(
    kafka: Broker, database_server: str, migrated_template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("openai")
    servers = (kafka.bootstrap_servers, database_server, migrated_template)
    also = {
        "gateway_port": str(ports.choose(0)),
        "gateway_openai": "true",
        "gateway_openai_begin_secs": f"{ON_SERVERS:g}",
    }
    with (
        full_pipeline.made(*servers, folder, SCRIPT, "--models", "owl", **QUICK) as pipeline,
        running(pipeline.settings, **also) as gateway,
    ):
        yield Stage(pipeline, gateway.address)


def said(content: str) -> dict[str, Any]:
    """Returns a user's message."""
    return {"role": "user", "content": content}


def is_valid(messages: list[dict[str, Any]]) -> bool:
    """Whether each call is followed by its tool message."""
    return all(
        following and following.get("tool_call_id") == message["tool_calls"][0]["id"]
        for message, following in zip_longest(messages, messages[1:])
        if "tool_calls" in message
    )
