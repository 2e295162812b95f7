"""A context as a request of the chat completions API: `messages`, `tools` and `tool_choice`."""

from __future__ import annotations

from typing import Any

from frameledger_services.providers import tool_forms
from frameledger_services.providers.adapter import Prompt
from frameledger_services.providers.openai_adapter import OpenAILLMAdapter
from frameledger_services.providers.settings import LLMSettings
from frameledger_services.store.contexts import StoredContext

PARTS = ("messages", "tools", "tool_choice")


def request_parts(stored: StoredContext) -> dict[str, Any]:
    """Returns these three parts of the request that our OpenAI adapter creates from a context. Without tools there is
    neither `tools` nor `tool_choice`, because the API refuses empty ones. Raises `UnmappableError` for content that the
    API cannot express.
    """
    adapter = OpenAILLMAdapter(takes_extra_fields=False)  # as for OpenAI itself
    tools, _ = adapter.tools(stored.context)
    body = adapter.body(
        Prompt(
            model="",
            settings=LLMSettings(),
            system=None,
            messages=adapter.messages(stored.context, tools, answers=stored.answers),
            tools=tools,
            tool_choice=tool_forms.choice_of(adapter.provider, stored.context.tool_choice, tools),
            prompt_caching=False,
        )
    )
    return {name: body[name] for name in PARTS if name in body}
