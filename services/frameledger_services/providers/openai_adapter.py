"""`OpenAILLMAdapter`: a context as a request to OpenAI's chat completions, or to a compatible server."""

from __future__ import annotations

import hashlib
import re
import string
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Self

from frameledger.context import LLMContextMessage, LLMSpecificMessage
from frameledger_services.providers import call_arguments, content, extra_content, message_order, reasoning
from frameledger_services.providers.adapter import LLMAdapter, Prompt
from frameledger_services.providers.errors import UnmappableError
from frameledger_services.providers.extra_content import ExtraContent
from frameledger_services.providers.openai_dialect import DeveloperRole, Dialect
from frameledger_services.providers.pairing import tool_calls
from frameledger_services.providers.settings import LLMSettings
from frameledger_services.providers.tool_forms import Function, Tool, ToolChoice

_LONGEST_ID = 40
"""Characters of a call's id; a longer one is refused."""

_LETTERS_AND_DIGITS = string.ascii_letters + string.digits

_SHORT_ID = re.compile("[a-zA-Z0-9]{9}")

_SINCE = {
    "short_call_ids": False,
    "reasons_with_functions": True,
    "user_first": False,
    "plain_text": False,
    "mistral_fields": False,
    "strict_order": False,
    "alternating": False,
    "null_content": False,
    "accepted_names": False,
    "omits_empty_fields": False,
}
"""Parameters that earlier versions did not record, with the values that their requests have."""

_MISTRALS_FIELDS = frozenset({"role", "content", "tool_calls", "tool_call_id", "prefix"})

_NOT_IN_NAMES = re.compile(r"[\s<|\\/>]")
_LONGEST_NAME = 64

_GPT = re.compile(r"gpt-(\d+)(?:\.(\d+))?(?!.*chat)")

# Which parts of content each role may have; a role that is not here has only text.
_PARTS = {
    "user": frozenset({"text", "image_url", "input_audio", "file"}),
    "assistant": frozenset({"text", "refusal"}),
}


class OpenAILLMAdapter(LLMAdapter):
    """Standard messages, developer messages included, have this form already and are sent unchanged; so are the
    provider's own.

    - The composed system instruction becomes the first message, with the role `system`, which every compatible server
      knows.
    - An assistant message without content and calls is left out, because the API would refuse the whole request for it.
    - Arguments are the text of a JSON object (`call_arguments`). An id that is too long is shortened in all its places.
      Mistral accepts only ids of nine letters and digits: `short_call_ids` replaces all others by such ids.
    - The API refuses both token limits at once: the smaller one is sent, under the newer name. OpenAI itself and Azure
      know the newer name with every model, so they get only that.
    - OpenAI's models from GPT-5.5 on reason by default, and chat completions then refuse functions: if functions are
      offered and the settings name no effort, it is `none`.
    - Calls without content are sent without that field, because LM Studio, for one, has refused null in it, and to
      OpenAI with null: `null_content`.
    - Some servers accept text only as a string and not in parts: `plain_text` writes content that is only text as a
      string.
    - APIs refuse a request without a message. Many servers also refuse one in which the user does not speak first
      (`user_first`), or with several system messages or two consecutive messages of one role (`alternating`). Mistral
      accepts even fewer orders of messages: `strict_order`.
    - Fields that say nothing, as OpenAI's SDK has them in each answer, are left out: some servers refuse them.
    - The name of a speaker is sent in a form that the API accepts: a space or a sign such as `/` becomes an underscore.
    - Mistral has other names for some fields, and refuses unknown ones, in messages too: `mistral_fields`.
    - Developer messages become system messages, or user messages in a tag, if `developer_role` says so.
    - Thoughts of this provider are left out, because the API has no place for them. What a compatible server added to
      calls is returned with them (`extra_content`), and so is the reasoning that it streamed with its answers
      (`reasoning`), but only if functions are offered or were called: other requests do not need it. Servers that
      refuse unknown fields get neither.
    """

    provider = "openai"
    settings_mapped = frozenset(
        {
            "temperature",
            "max_tokens",
            "max_completion_tokens",
            "top_p",
            "frequency_penalty",
            "presence_penalty",
            "seed",
        }
    )
    own_messages_are_standard = True

    def __init__(self, developer_role: DeveloperRole = "developer", **others: bool) -> None:
        """The arguments are the fields of a `Dialect`."""
        self._dialect = Dialect(developer_role, **others)

    def parameters(self) -> dict[str, Any]:
        return asdict(self._dialect)

    def with_parameters(self, parameters: Mapping[str, Any]) -> Self:
        takes_max_tokens = parameters["takes_max_tokens"]
        return type(self)(
            parameters["developer_role"],
            takes_max_tokens=takes_max_tokens,
            # Earlier versions recorded the first two only, and the second stood for the third.
            takes_extra_fields=parameters.get("takes_extra_fields", takes_max_tokens),
            **{name: parameters.get(name, value) for name, value in _SINCE.items()},
        )

    def whole_body(self, prompt: Prompt) -> dict[str, Any]:
        body = super().whole_body(prompt)
        if (
            not self._dialect.reasons_with_functions
            and body.get("tools")
            and _reasons_by_itself(body["model"])
        ):
            body.setdefault("reasoning_effort", "none")
        return body

    def body(self, prompt: Prompt) -> dict[str, Any]:
        body: dict[str, Any] = {"model": prompt.model, "messages": self._messages(prompt)}
        body |= self._sampling(prompt.settings)
        if prompt.tools:
            body["tools"] = [_tool(tool) for tool in prompt.tools]
        if prompt.tool_choice is not None:
            body["tool_choice"] = _choice(prompt.tool_choice, prompt.tools)
        # Mistral reports the usage in any case, and refuses the field that requests it.
        options = {} if self._dialect.mistral_fields else {"stream_options": {"include_usage": True}}
        return body | {"stream": True} | options

    def _sampling(self, settings: LLMSettings) -> dict[str, Any]:
        values = {name: getattr(settings, name) for name in sorted(self.settings_mapped)}
        values = {name: value for name, value in values.items() if value is not None}
        if self._dialect.mistral_fields:
            return _with_mistrals_names(values)
        newer = values.get("max_completion_tokens")
        if "max_tokens" in values and (newer is not None or not self._dialect.takes_max_tokens):
            older = values.pop("max_tokens")
            values["max_completion_tokens"] = older if newer is None else min(older, newer)
        return values

    def _is_own(self, message: LLMSpecificMessage) -> bool:
        kept = (extra_content.kept_under(self.provider), reasoning.kept_under(self.provider))
        return super()._is_own(message) or (message.llm in kept and _is_thought(message))

    def _messages(self, prompt: Prompt) -> list[Mapping[str, Any]]:
        system = [] if prompt.system is None else [{"role": "system", "content": prompt.system}]
        extra = ExtraContent()
        added = self._reasoning(prompt)
        written = [
            self._message(place, message, extra, added.get(place, {}))
            for place, message in enumerate(prompt.messages)
        ]
        messages = [*system, *(message for message in written if message is not None)]
        if self._dialect.mistral_fields:
            messages = [_as_mistral_takes_it(message) for message in messages]
        elif self._dialect.accepted_names:
            messages = [_named(message) for message in messages]
        if self._dialect.user_first or not messages:
            messages = message_order.user_first(messages)
        if self._dialect.strict_order:
            messages = message_order.in_strict_order(messages)
        if self._dialect.alternating:
            anywhere = self._dialect.developer_role != "user"
            messages = message_order.alternating(messages, system_anywhere=anywhere)
        return messages

    def _reasoning(self, prompt: Prompt) -> Mapping[int, Mapping[str, Any]]:
        if not self._dialect.takes_extra_fields or not (
            prompt.tools or any(map(tool_calls, prompt.messages))
        ):
            return {}
        return reasoning.returned(prompt.messages)

    def _message(
        self, place: int, message: LLMContextMessage, extra: ExtraContent, added: Mapping[str, Any]
    ) -> Mapping[str, Any] | None:
        if isinstance(message, LLMSpecificMessage):
            if _is_thought(message):
                if self._dialect.takes_extra_fields:
                    extra.read(message.message)
                return None
            raise UnmappableError(self.provider, f"message {place + 1} of the request, which has no role")
        self._check_parts(place, message)
        if self._dialect.omits_empty_fields:
            message = {
                name: value for name, value in message.items() if name == "content" or not _is_empty(value)
            }
        if message.get("content") in ([], ()):
            # The API refuses an empty list, and accepts empty text; for an assistant with calls also null.
            message = {**message, "content": None if message["role"] == "assistant" else ""}
        elif self._dialect.plain_text and _is_text(message.get("content")):
            message = {**message, "content": content.text_of(message)}
        match message.get("role"):
            case "assistant":
                if added:
                    added = reasoning.naming(added, message, self.call_id)
                    message = {"role": "assistant", **added, **message}
                return self._assistant(message, extra)
            case "tool":
                return {**message, "tool_call_id": self.call_id(message["tool_call_id"])}
            case "developer" if not self._dialect.strict_order:
                return self._developer(message)
            case _:
                return message

    def _developer(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        if self._dialect.developer_role == "user":
            return message_order.as_user(message)
        return {**message, "role": self._dialect.developer_role}

    def _assistant(self, message: Mapping[str, Any], extra: ExtraContent) -> Mapping[str, Any] | None:
        calls = message.get("tool_calls")
        if calls:
            if self._dialect.null_content:
                message = {"role": "assistant", "content": None, **message}
            return {**message, "tool_calls": [self._call(call) for call in extra.added_to(calls)]}
        rest = {name: value for name, value in message.items() if name != "tool_calls"}
        has_content = any(rest.get(name) for name in ("content", "refusal", "audio", "function_call"))
        return rest if has_content else None

    def _call(self, call: Mapping[str, Any]) -> dict[str, Any]:
        function = call["function"]
        return {
            "type": "function",
            **call,
            "id": self.call_id(call["id"]),
            "function": {**function, "arguments": call_arguments.as_text(function.get("arguments"))},
        }

    def call_id(self, tool_call_id: str) -> str:
        is_short = _SHORT_ID.fullmatch(tool_call_id) is not None
        if is_short if self._dialect.short_call_ids else len(tool_call_id) <= _LONGEST_ID:
            return tool_call_id
        digest = hashlib.sha256(tool_call_id.encode(errors="backslashreplace"))
        if not self._dialect.short_call_ids:
            return f"call_{digest.hexdigest()[:32]}"
        number = int.from_bytes(digest.digest())
        return "".join(_LETTERS_AND_DIGITS[number // 62**place % 62] for place in range(9))

    def _check_parts(self, place: int, message: Mapping[str, Any]) -> None:
        role = message["role"]
        for part in content.parts(message):
            if part["type"] not in _PARTS.get(role, {"text"}):
                where = f"message {place + 1} of the request"
                raise UnmappableError(
                    self.provider, f"a part of type {part['type']!r} in {where}, whose role is {role!r}"
                )


def _reasons_by_itself(model: object) -> bool:
    version = _GPT.match(model) if isinstance(model, str) else None
    return version is not None and (int(version[1]), int(version[2] or 0)) >= (5, 5)


def _as_mistral_takes_it(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the message with the fields that Mistral knows: it refuses a name of a speaker, and what clients keep of
    their own and of other APIs' answers. A refusal becomes content."""
    known = _MISTRALS_FIELDS | {"name"} if message["role"] == "tool" else _MISTRALS_FIELDS
    if message.get("refusal") and not message.get("content"):
        message = {**message, "content": message["refusal"]}
    return {name: value for name, value in message.items() if name in known}


def _named(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the message with its name as OpenAI accepts it; without one that is empty or no text."""
    if "name" not in message:
        return message
    name = message["name"]
    if not isinstance(name, str) or not name:
        return _without_name(message)
    accepted = _NOT_IN_NAMES.sub("_", name)[:_LONGEST_NAME]
    return message if accepted == name else {**message, "name": accepted}


def _without_name(message: Mapping[str, Any]) -> Mapping[str, Any]:
    return {name: value for name, value in message.items() if name != "name"}


def _with_mistrals_names(values: dict[str, Any]) -> dict[str, Any]:
    limits = [limit for name in ("max_tokens", "max_completion_tokens") if (limit := values.pop(name, None))]
    named = {"random_seed": values.pop("seed")} if "seed" in values else {}
    return values | named | ({"max_tokens": min(limits)} if limits else {})


def _is_empty(value: object) -> bool:
    return value is None or value == [] or value == ()


def _is_text(parts: object) -> bool:
    return isinstance(parts, list | tuple) and all(part["type"] == "text" for part in parts)


def _is_thought(message: LLMSpecificMessage) -> bool:
    return isinstance(message.message, Mapping) and message.message.get("type") == "thought"


def _tool(tool: Tool) -> Mapping[str, Any]:
    if not isinstance(tool, Function):
        return tool.definition
    function: dict[str, Any] = {"name": tool.name}
    if tool.description:
        function["description"] = tool.description
    function["parameters"] = tool.parameters
    if tool.strict is not None:
        function["strict"] = tool.strict
    return {"type": "function", "function": function}


def _choice(choice: ToolChoice, tools: tuple[Tool, ...]) -> str | dict[str, Any]:
    if choice.mode != "function":
        return choice.mode
    named = next((tool for tool in tools if tool.name == choice.name), None)
    # OpenAI's custom tools accept free text and are chosen in a form of their own.
    own = "function" if named is None or isinstance(named, Function) else str(named.definition.get("type"))
    kind = own if own == "custom" else "function"
    return {"type": kind, kind: {"name": choice.name}}
