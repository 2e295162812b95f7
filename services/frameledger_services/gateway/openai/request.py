"""The body of a request for a completion: its messages, and the meaning of its parameters.

Every parameter is honoured, or refused because the answer would differ without it, or ignored because it changes no
answer. Unknown parameters are refused, as OpenAI does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from frameledger.surrogates import has_half
from frameledger_services.gateway import client_tools
from frameledger_services.gateway.openai import request_values
from frameledger_services.gateway.openai.request_values import refuse

ROLES = ("system", "developer", "user", "assistant", "tool")

SETTINGS: Mapping[str, str] = {
    name: name
    for name in (
        "temperature",
        "top_p",
        "top_k",
        "max_tokens",
        "max_completion_tokens",
        "frequency_penalty",
        "presence_penalty",
        "seed",
    )
}
"""Parameters that are settings of a conversation with the same name."""

PASSED_ON = ("stop", "response_format", "reasoning_effort", "verbosity", "logit_bias")
"""Parameters that are passed to the model's provider unchanged (the setting `extra`)."""

IGNORED = frozenset(
    (
        "metadata",
        "parallel_tool_calls",
        "prompt_cache_key",
        "prompt_cache_retention",
        "safety_identifier",
        "service_tier",
        "store",
        "user",
    )
)
"""Parameters without effect. Some frameworks send `parallel_tool_calls: false` with each request, so it is no error,
although the model may still make several calls at once."""

ALLOWED: Mapping[str, tuple[Any, ...]] = {
    "n": (1,),
    "functions": ([],),
    "tool_choice": ("auto",),
    "function_call": ("auto",),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "modalities": (["text"],),
    "audio": (),
    "prediction": (),
    "web_search_options": (),
}
"""Parameters that are not supported, each with the values that mean its absence."""

WHY = {
    "n": "A conversation has only one continuation, so n must be 1.",
    "functions": "Use `tools`.",
    "tool_choice": "tool_choice is not supported here: the model chooses. For an answer of a given form use "
    "`response_format`, with `json_schema`.",
}


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """The parameters of a request for a completion."""

    messages: tuple[Mapping[str, Any], ...]
    """The history as the client sent it."""

    model: str | None
    """None for the inference service's own."""

    settings: Mapping[str, Any]
    """The settings that the request has."""

    passed_on: Mapping[str, Any]
    conversation: str | None
    """The conversation that the body names."""

    tools: tuple[dict[str, Any], ...]
    """The client's own functions, in the form of the log."""

    is_only_new: bool | None
    """Whether the messages are only new ones, and not the whole history. None: unless they begin as the conversation
    does (`history.is_sent_again`) or repeat its end (`history.repeated_end`)."""

    stream: bool
    include_usage: bool
    sha256: str
    """The hash of the body. A client that retries sends the same bytes."""

    def changes(self, stored: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the content of the `LLMUpdateSettingsFrame` that turns the `stored` settings into those of the
        request. Each request has all of its parameters, so one that it lacks is unset: the service's default applies
        then."""
        extra = {k: v for k, v in (stored.get("extra") or {}).items() if k not in PASSED_ON}
        requested = {"model": self.model, **self.settings, "extra": {**extra, **self.passed_on} or None}
        names = ("model", *SETTINGS, "extra")
        return {name: requested.get(name) for name in names if stored.get(name) != requested.get(name)}

    def noted(self) -> dict[str, Any]:
        """Returns the details of the request that are recorded in the frame that asks."""
        return {"request_sha256": self.sha256}


def read(body: bytes) -> CompletionRequest:
    """Returns the parsed body. Raises the problem `bad-parameter`, which names the parameter."""
    parameters = request_values.parameters(body)
    for name, value in parameters.items():
        _check(name, value)
    return CompletionRequest(
        messages=_messages(parameters.get("messages")),
        model=request_values.model(parameters.get("model")),
        settings=request_values.settings(parameters, SETTINGS),
        passed_on={
            name: parameters[name] for name in PASSED_ON if parameters.get(name) not in (None, {}, [])
        },
        conversation=_conversation(parameters.get("conversation")),
        tools=_tools(parameters.get("tools", [])),
        is_only_new=_is_only_new(parameters.get("conversation")),
        stream=request_values.flag(parameters, "stream"),
        include_usage=_include_usage(parameters.get("stream_options", {})),
        sha256=hashlib.sha256(body).hexdigest(),
    )


_READ = frozenset(
    ("messages", "model", "tools", "stream", "stream_options", "conversation", *SETTINGS, *PASSED_ON)
)


def _check(name: str, value: Any) -> None:
    if name in ALLOWED:
        if not request_values.is_one_of(value, ALLOWED[name]):
            refuse(name, WHY.get(name, f"{name} is not supported here."), code="unsupported_parameter")
    elif name not in _READ and name not in IGNORED:
        refuse(name, f"{name[:100]} is not a parameter of this API.", code="unknown_parameter")


def _messages(messages: Any) -> tuple[Mapping[str, Any], ...]:
    if not isinstance(messages, list) or not messages:
        refuse("messages", "messages: a list of one or more messages is expected.")
    for number, message in enumerate(messages):
        place = f"messages[{number}]"
        if not isinstance(message, dict):
            refuse(place, f"{place}: an object is expected.")
        if message.get("role") not in ROLES:
            refuse(f"{place}.role", f"{place}: role is one of {', '.join(ROLES)}.")
        if not isinstance(message.get("content"), str | list | None):
            refuse(f"{place}.content", f"{place}: content is text, or a list of parts.")
        if message.get("content") is None and message["role"] != "assistant":
            refuse(f"{place}.content", f"{place}: content is missing.")
        _check_calls(place, message.get("tool_calls"))
        if message["role"] == "tool" and not _is_id(message.get("tool_call_id")):
            refuse(f"{place}.tool_call_id", f"{place}: tool_call_id is the id of a call.")
    return tuple(messages)


def _check_calls(place: str, calls: Any) -> None:
    if not isinstance(calls, list | None):
        refuse(f"{place}.tool_calls", f"{place}: tool_calls is a list.")
    for number, call in enumerate(calls or ()):
        at = f"{place}.tool_calls[{number}]"
        if not isinstance(call, dict) or not _is_id(call.get("id")):
            refuse(f"{at}.id", f"{at}: an object with a text as `id` is expected.")
        function = call.get("function")
        if call.get("type", "function") != "function":
            continue
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            refuse(f"{at}.function", f"{at}: function is an object with a name.")
        if not isinstance(function.get("arguments"), str):
            refuse(f"{at}.function.arguments", f"{at}: arguments are JSON as a text.")


def _is_id(value: Any) -> bool:
    """Whether it is text that the database accepts."""
    return isinstance(value, str) and "\x00" not in value and not has_half(value)


def _tools(tools: Any) -> tuple[dict[str, Any], ...]:
    if not isinstance(tools, list):
        refuse("tools", "tools: a list is expected.")
    for number, tool in enumerate(tools):
        if (
            not isinstance(tool, dict)
            or tool.get("type") != "function"
            or not isinstance(tool.get("function"), dict)
        ):
            place = f"tools[{number}]"
            refuse(place, f'{place}: {{"type": "function", "function": {{...}}}} is expected.')
    names = ("name", "description", "parameters", "strict")
    return client_tools.stored_definitions(
        client_tools.Definition(*(one["function"].get(name) for name in names)) for one in tools
    )


def _conversation(value: Any) -> str | None:
    if isinstance(value, dict):
        value = value.get("id")
        if value is None:
            refuse("conversation", "conversation: the object has no id.")
    if value is not None and not isinstance(value, str):
        refuse("conversation", 'conversation: an id is expected, or {"id": ...}.')
    return value


def _is_only_new(conversation: Any) -> bool:
    if not isinstance(conversation, dict):
        return False
    if unknown := [name for name in conversation if name not in ("id", "append")]:
        refuse("conversation", f"conversation: {unknown[0][:100]!r} is neither id nor append.")
    return request_values.flag(conversation, "append")


def _include_usage(options: Any) -> bool:
    if not isinstance(options, dict):
        refuse("stream_options", "stream_options: an object is expected.")
    for name, value in options.items():
        if name not in ("include_usage", "include_obfuscation") and value is not None:
            place = f"stream_options.{name[:100]}"
            refuse(place, f"{place} is not a parameter of this API.", code="unknown_parameter")
    if request_values.flag(options, "include_obfuscation"):
        place = "stream_options.include_obfuscation"
        refuse(place, f"{place} is not supported here; omit it.", code="unsupported_parameter")
    return request_values.flag(options, "include_usage")
