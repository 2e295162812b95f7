"""The body of a request for a response, in the terms of chat completions, and the conversation that it continues.

As there, a parameter is honoured, ignored because it changes no answer, or refused with what to do instead. `input` has
the new messages; earlier ones are in the conversation, which `previous_response_id` or `conversation` names.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from frameledger_services.gateway import client_tools
from frameledger_services.gateway.openai import request_values
from frameledger_services.gateway.openai.request import CompletionRequest
from frameledger_services.gateway.openai_responses import items
from frameledger_services.gateway.openai_responses.items import refuse
from frameledger_services.store.answered_requests import RESPONSE

INSTRUCTION = "system_instruction"
"""The setting of a conversation that `instructions` sets."""

SETTINGS: Mapping[str, str] = {
    "instructions": INSTRUCTION,
    "temperature": "temperature",
    "top_p": "top_p",
    "max_output_tokens": "max_completion_tokens",
}
"""The settings of a conversation by the names of the parameters that set them."""

HONOURED = frozenset(
    (
        "conversation",
        "input",
        "metadata",
        "model",
        "previous_response_id",
        "reasoning",
        "store",
        "stream",
        "stream_options",
        "text",
        "tools",
        *SETTINGS,
    )
)

IGNORED = frozenset(
    (
        "parallel_tool_calls",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "safety_identifier",
        "service_tier",
        "user",
    )
)
"""Parameters without effect, as in chat completions."""

ALLOWED: Mapping[str, tuple[Any, ...]] = {
    "background": (False,),
    "context_management": ([],),
    "include": ([],),
    "max_tool_calls": (),
    "moderation": (),
    "prompt": (),
    "store": (True,),
    "tool_choice": ("auto",),
    "top_logprobs": (0,),
    "truncation": ("disabled",),
}
"""Parameters that are not supported, each with the values that mean its absence."""

INSTEAD = {
    "background": "an answer continues without its client if FRAMELEDGER_GATEWAY_OPENAI_INTERRUPT is false; `GET "
    "/v1/responses/{id}` reads it.",
    "context_management": "the limits of a conversation are those of an LLMSetLimitsFrame.",
    "include": "responses have messages and calls only; omit it.",
    "prompt": "send the text as `instructions` and `input`.",
    "store": "every response is stored. Send true or leave it out; `DELETE /v1/contexts/{id}` erases a conversation.",
    "tool_choice": "the model chooses. For an answer of a given form use `text.format`, with `json_schema`.",
    "truncation": "the limits of a conversation are those of an LLMSetLimitsFrame; leave it out.",
}

MAX_METADATA = 16
MAX_KEY = 64
MAX_VALUE = 512
"""The limits of `metadata` in OpenAI's API: pairs, and characters of each key and value."""


@dataclass(frozen=True, slots=True)
class ResponseRequest(CompletionRequest):
    """The parameters of a request for a response. `messages` are only the new ones, unless `is_only_new` is false, or a
    client sends the history again, as frameworks do."""

    previous_response_id: str | None
    metadata: Mapping[str, str]
    replaced_instruction: str | None = None
    """The instruction of the previous response, which is not carried over."""

    def changes(self, stored: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the content of the `LLMUpdateSettingsFrame`, as for chat completions. An instruction that was not
        given by a request for a response stays, unless this one gives another."""
        changed = CompletionRequest.changes(self, stored)
        instruction, held = self.settings.get(INSTRUCTION), stored.get(INSTRUCTION)
        if instruction is not None or held == self.replaced_instruction:
            return changed if instruction == held else {**changed, INSTRUCTION: instruction}
        return changed

    def noted(self) -> dict[str, Any]:
        """Returns the details of the request that are recorded in the frame that asks, besides those that the
        conversation has anyway."""
        about = {
            "previous_response_id": self.previous_response_id,
            "metadata": self.metadata or None,
            "has_instructions": INSTRUCTION in self.settings or None,
        }
        response_fields = {name: value for name, value in about.items() if value is not None}
        return {**CompletionRequest.noted(self), RESPONSE: response_fields}


@dataclass(frozen=True, slots=True)
class Body:
    """A parsed body: its parameters, all known to this API, and the hash of its bytes."""

    parameters: Mapping[str, Any]
    sha256: str

    @property
    def given_input(self) -> Any:
        """The `input` of the body as it was sent."""
        return self.parameters.get("input")


def parse(body: bytes) -> Body:
    """Returns a body without converting its input. Raises the problem `bad-parameter`, which names the parameter."""
    parameters = request_values.parameters(body)
    for name, value in parameters.items():
        if name in ALLOWED:
            if not request_values.is_one_of(value, ALLOWED[name]):
                refuse(
                    name,
                    f"not supported here: {INSTEAD.get(name, 'leave it out.')}",
                    code="unsupported_parameter",
                )
        elif name not in HONOURED and name not in IGNORED:
            refuse(name[:100], "no parameter of this API.", code="unknown_parameter")
    return Body(parameters, hashlib.sha256(body).hexdigest())


def read(body: Body, stored: Mapping[str, Mapping[str, Any]] = items.NOTHING) -> ResponseRequest:
    """Returns the request of a body. `stored` has the items that its input refers to. Raises the problems
    `bad-parameter` and `no-such-response`, which name the parameter."""
    parameters = body.parameters
    if parameters.get("previous_response_id") is not None and parameters.get("conversation") is not None:
        refuse("conversation", "`previous_response_id` names the conversation already; send one of both.")
    return ResponseRequest(
        messages=items.messages(body.given_input, stored),
        model=request_values.model(parameters.get("model")),
        settings=request_values.settings(parameters, SETTINGS),
        passed_on=_passed_on(parameters),
        conversation=_conversation(parameters.get("conversation")),
        tools=_tools(parameters.get("tools", [])),
        is_only_new=None,
        stream=request_values.flag(parameters, "stream"),
        include_usage=True,
        sha256=body.sha256,
        previous_response_id=_previous(parameters.get("previous_response_id")),
        metadata=_metadata(parameters.get("metadata", {})),
    )


def _passed_on(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the parameters that are passed to the provider, under the names of chat completions."""
    extra: dict[str, Any] = {}
    text = _only("text", parameters.get("text", {}), "format", "verbosity")
    if (form := text.get("format")) is not None:
        extra |= _response_format(form)
    if text.get("verbosity") is not None:
        extra["verbosity"] = text["verbosity"]
    reasoning = _only("reasoning", parameters.get("reasoning", {}), "effort")
    if reasoning.get("effort") is not None:
        extra["reasoning_effort"] = reasoning["effort"]
    _only("stream_options", parameters.get("stream_options", {}), "include_obfuscation")
    if request_values.flag(parameters.get("stream_options", {}), "include_obfuscation"):
        refuse(
            "stream_options.include_obfuscation",
            "not supported here; leave it out.",
            code="unsupported_parameter",
        )
    return extra


def _response_format(form: Any) -> dict[str, Any]:
    kind = form.get("type") if isinstance(form, dict) else None
    if kind == "text":
        return {}
    if kind == "json_object":
        return {"response_format": {"type": kind}}
    if kind != "json_schema":
        refuse("text.format.type", "one of text, json_object and json_schema is expected.")
    schema = {name: value for name, value in form.items() if name != "type" and value is not None}
    return {"response_format": {"type": kind, kind: schema}}


def _only(name: str, fields: Any, *known: str) -> dict[str, Any]:
    if not isinstance(fields, dict):
        refuse(name, "an object is expected.")
    for key, value in fields.items():
        if key not in known and value is not None:
            refuse(f"{name}.{key[:100]}", "not supported here; leave it out.", code="unsupported_parameter")
    return fields


def _conversation(value: Any) -> str | None:
    if value is None:
        return None
    # An object without an id is refused: it does not ask for a new conversation either.
    context_id = _only("conversation", value, "id").get("id") if isinstance(value, dict) else value
    if not isinstance(context_id, str):
        refuse("conversation", 'an id is expected, or {"id": ...}.')
    return context_id


def _previous(value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        refuse("previous_response_id", "the id of a response is expected.")
    return value


def _metadata(metadata: Any) -> dict[str, str]:
    is_small = isinstance(metadata, dict) and len(metadata) <= MAX_METADATA
    if not is_small or not all(
        isinstance(value, str) and len(name) <= MAX_KEY and len(value) <= MAX_VALUE
        for name, value in metadata.items()
    ):
        refuse(
            "metadata",
            f"an object of at most {MAX_METADATA} texts is expected, with names of at most {MAX_KEY} characters and "
            f"values of at most {MAX_VALUE}.",
        )
    return dict(metadata)


def _tools(tools: Any) -> tuple[dict[str, Any], ...]:
    if not isinstance(tools, list):
        refuse("tools", "a list is expected.")
    for number, tool in enumerate(tools):
        if not isinstance(tool, dict) or tool.get("type") != "function":
            refuse(
                f"tools[{number}].type",
                "tools are functions of the client (`function`); others are registered functions of services.",
                code="unsupported_parameter",
            )
    names = ("name", "description", "parameters", "strict")
    return client_tools.stored_definitions(
        client_tools.Definition(*(one.get(name) for name in names)) for one in tools
    )
