"""`AnthropicLLMAdapter`: a context as a request to Anthropic's messages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Self

from frameledger_services.providers import anthropic_blocks
from frameledger_services.providers.adapter import LLMAdapter, Prompt
from frameledger_services.providers.anthropic_messages import AnthropicMessages
from frameledger_services.providers.errors import UnmappableError
from frameledger_services.providers.settings import LLMSettings
from frameledger_services.providers.tool_forms import Function, Tool, ToolChoice

MAX_TOKENS = 8192
"""The token limit of an answer if no setting has one: the API requires a limit. A budget for thoughts is added to it,
because the API counts thoughts as part of the answer and refuses a budget that leaves nothing for text."""

CACHED: Mapping[str, Any] = {"type": "ephemeral"}

MAX_MARKS = 4
"""Maximum cache marks in a request; the API refuses more."""

BINDING = "block_binding"
"""The field of `thinking` that says what happens to a thought if the conversation before it has changed."""

_VERSION = re.compile(r"claude-[a-z]+-(\d+)(?:-(\d{1,2}))?(?!\d)")

_PLAIN = {"type": "text"}
"""The `response_format` that every answer has."""

_MODES = {"auto": "auto", "required": "any", "none": "none"}


class AnthropicLLMAdapter(LLMAdapter):
    """The rules of `AnthropicMessages`, and:

    - The composed system instruction and the context's first instructions are in `system`, a block each.
    - Both token limits are one here, thoughts included: the smaller counts. Temperatures above 1 are refused by name.
    - A history with calls needs tools: if the context has none, the called functions are declared, but may not be
      called.
    - Of OpenAI's fields in `extra`, `stop` becomes `stop_sequences`, and a `response_format` of text, which every
      answer has, is left out.
    - Prompt caching marks the end of the tools, of the system, and of the messages that will be the same in the next
      request: four marks at most, including those of a client's own blocks and tools, and none before a client's, which
      may be one for a longer time.
    - From Claude 5.1 on, a thought is bound to everything before it. If that has changed, by new tools or a late
      result, each later request would fail: the request tells the API to leave such thoughts out.
    - Thoughts that were never signed are omitted, except for servers that sign none: `unsigned_thoughts`.
    """

    provider = "anthropic"
    settings_mapped = frozenset({"temperature", "max_tokens", "max_completion_tokens", "top_p", "top_k"})

    def __init__(
        self,
        *,
        drops_unbound_thoughts: bool = True,
        adds_thinking_budget: bool = True,
        unsigned_thoughts: bool = False,
    ) -> None:
        """All are false for requests of earlier versions, which had none of these features."""
        self._drops_unbound_thoughts = drops_unbound_thoughts
        self._adds_thinking_budget = adds_thinking_budget
        self._unsigned_thoughts = unsigned_thoughts

    def parameters(self) -> dict[str, Any]:
        return {
            "drops_unbound_thoughts": self._drops_unbound_thoughts,
            "adds_thinking_budget": self._adds_thinking_budget,
            "unsigned_thoughts": self._unsigned_thoughts,
        }

    def with_parameters(self, parameters: Mapping[str, Any]) -> Self:
        return type(self)(
            drops_unbound_thoughts=parameters.get("drops_unbound_thoughts", False),
            adds_thinking_budget=parameters.get("adds_thinking_budget", False),
            unsigned_thoughts=parameters.get("unsigned_thoughts", False),
        )

    def call_id(self, tool_call_id: str) -> str:
        return anthropic_blocks.tool_id(tool_call_id)

    def whole_body(self, prompt: Prompt) -> dict[str, Any]:
        body = super().whole_body(prompt)
        # Models that bind thoughts think by default, as with `adaptive`.
        thinking = body.get("thinking", {"type": "adaptive"})
        if (
            self._drops_unbound_thoughts
            and _binds_thoughts(body["model"])
            and isinstance(thinking, Mapping)
            and thinking.get("type") != "disabled"
        ):
            body["thinking"] = {BINDING: {"prefix_mismatch_behavior": "drop_block"}, **thinking}
        limited = _limits(prompt.settings) or "max_tokens" in (prompt.settings.extra or {})
        if self._adds_thinking_budget and not limited:
            body["max_tokens"] += _thinking_budget(thinking)
        return body

    def body(self, prompt: Prompt) -> dict[str, Any]:
        conversation = AnthropicMessages(
            self.provider, prompt.messages, unsigned_thoughts=self._unsigned_thoughts
        )
        system = [] if prompt.system is None else [prompt.system]
        blocks: list[Mapping[str, Any]] = [
            {"type": "text", "text": text} for text in [*system, *conversation.system]
        ]
        tools = [_tool(tool) for tool in prompt.tools]
        choice = _choice(prompt.tool_choice)
        if not tools and conversation.called:
            tools, choice = [_removed_tool(name) for name in conversation.called], {"type": "none"}
        if prompt.prompt_caching:
            _mark(conversation, blocks, tools)
        body: dict[str, Any] = {
            "model": prompt.model,
            "max_tokens": min(_limits(prompt.settings), default=MAX_TOKENS),
        }
        if tools:
            body["tools"] = tools
        if choice is not None:
            body["tool_choice"] = choice
        if blocks:
            body["system"] = blocks
        return body | {"messages": conversation.messages, "stream": True} | self._sampling(prompt.settings)

    def extra(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        body = dict(fields)
        # Null is OpenAI's default of both, and Anthropic's API refuses it.
        if (stop := body.pop("stop", None)) is not None:
            body.setdefault("stop_sequences", [stop] if isinstance(stop, str) else stop)
        if body.get("response_format", _PLAIN) in (None, _PLAIN):
            body.pop("response_format", None)
        return body

    def _sampling(self, settings: LLMSettings) -> dict[str, Any]:
        if settings.temperature is not None and settings.temperature > 1:
            raise UnmappableError(
                self.provider, f"the setting temperature of {settings.temperature:g}, since it takes 0 to 1"
            )
        values = {name: getattr(settings, name) for name in ("temperature", "top_p", "top_k")}
        return {name: value for name, value in values.items() if value is not None}


def _mark(
    conversation: AnthropicMessages, system: list[Mapping[str, Any]], tools: list[Mapping[str, Any]]
) -> None:
    """Mark the ends of prefixes for caching, the longest prefix first."""
    room = MAX_MARKS - conversation.marks - sum("cache_control" in tool for tool in tools)
    heads = [] if conversation.marks else [head for head in (system, tools) if head]
    if room > 0 and conversation.mark_stable_end(CACHED):
        room -= 1
    for head in heads[: max(room, 0)]:
        # A tool that is loaded later is not at the beginning of the prompt: the API refuses a mark on it.
        at = next((at for at in reversed(range(len(head))) if not head[at].get("defer_loading")), None)
        if at is not None and "cache_control" not in head[at]:
            head[at] = {**head[at], "cache_control": CACHED}


def _binds_thoughts(model: object) -> bool:
    version = _VERSION.search(model) if isinstance(model, str) else None
    return version is not None and (int(version[1]), int(version[2] or 0)) >= (5, 1)


def _limits(settings: LLMSettings) -> list[int]:
    return [limit for limit in (settings.max_tokens, settings.max_completion_tokens) if limit is not None]


def _thinking_budget(thinking: object) -> int:
    budget = thinking.get("budget_tokens") if isinstance(thinking, Mapping) else None
    return budget if isinstance(budget, int) and budget > 0 else 0


def _tool(tool: Tool) -> Mapping[str, Any]:
    if not isinstance(tool, Function):
        return tool.definition
    definition: dict[str, Any] = {"name": tool.name}
    if tool.description:
        definition["description"] = tool.description
    definition["input_schema"] = tool.parameters
    if tool.strict is not None:
        definition["strict"] = tool.strict
    return definition


def _removed_tool(name: str) -> dict[str, Any]:
    return {"name": name, "description": "Not available any more.", "input_schema": {"type": "object"}}


def _choice(choice: ToolChoice | None) -> dict[str, Any] | None:
    if choice is None:
        return None
    if choice.mode == "function":
        return {"type": "tool", "name": choice.name}
    return {"type": _MODES[choice.mode]}
