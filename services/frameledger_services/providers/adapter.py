"""`LLMAdapter` converts a provider-independent context to the body of a provider's request."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, ClassVar, Self

from frameledger.context import LLMContext, LLMContextMessage, LLMSpecificMessage
from frameledger_services import cancel_tools
from frameledger_services.providers import called_names, content, gathering, pairing, tool_forms
from frameledger_services.providers.errors import UnmappableError
from frameledger_services.providers.settings import LLMSettings
from frameledger_services.providers.tool_forms import Tool, ToolChoice


@dataclass(frozen=True, slots=True)
class Prompt:
    """The checked content of a request, independent of the provider. An adapter converts it to a provider's form."""

    model: str
    settings: LLMSettings
    """The effective settings: those of the request, then of the context, then of the service. The system instruction is
    in `system`."""

    system: str | None
    """The composed system instruction of the service. System messages of the context are in `messages`."""

    messages: tuple[LLMContextMessage, ...]
    """Standard messages, checked and with each call followed by its result, and the provider's own
    `LLMSpecificMessage`s."""

    tools: tuple[Tool, ...]
    tool_choice: ToolChoice | None
    prompt_caching: bool


class LLMAdapter(ABC):
    """Writes the requests of one provider. It has no state: equal prompts give equal bodies."""

    provider: ClassVar[str]
    """The name in `LLMSpecificMessage.llm` and in custom tools, and on start frames."""

    settings_mapped: ClassVar[frozenset[str]] = frozenset()
    """The fields of `LLMSettings` that `body` supports, apart from model, system_instruction and extra."""

    own_messages_are_standard: ClassVar[bool] = False
    """Whether the provider's own messages have the standard form. If so, they are treated as standard messages."""

    @abstractmethod
    def body(self, prompt: Prompt) -> dict[str, Any]:
        """Returns the JSON object of the request, without `extra`. Pure.

        Raises `UnmappableError` that names the unsupported message, part, tool choice or setting.
        """

    def parameters(self) -> dict[str, Any]:
        """Returns the inputs of `body` besides the prompt, as JSON, so that a request can be reproduced."""
        return {}

    def with_parameters(self, parameters: Mapping[str, Any]) -> Self:
        """Returns an adapter with these `parameters`."""
        return self

    def create_llm_specific_message(self, message: Any) -> LLMSpecificMessage:
        """Returns a message in this provider's own form. Adapters of other providers omit it."""
        return LLMSpecificMessage(self.provider, message)

    def check_settings(self, settings: LLMSettings) -> None:
        """Raises `UnmappableError` that names the first setting that is set and not supported. A penalty of 0 counts as
        not set."""
        for name in LLMSettings.model_fields:
            if name in _ANYWHERE or name in self.settings_mapped or getattr(settings, name) is None:
                continue
            if name in _PENALTIES and getattr(settings, name) == 0:
                continue
            raise UnmappableError(self.provider, f"the setting {name}")

    def extra(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the fields of the setting `extra` in this provider's form. They replace fields of `body`."""
        return dict(fields)

    def whole_body(self, prompt: Prompt) -> dict[str, Any]:
        """Returns `body` with the fields of the setting `extra`."""
        return {**self.body(prompt), **self.extra(prompt.settings.extra or {})}

    def call_id(self, tool_call_id: str) -> str:
        """Returns the id of a call as the provider accepts it. An id that it returned is returned unchanged."""
        return tool_call_id

    def messages(
        self,
        context: LLMContext,
        tools: Sequence[Tool],
        *,
        system_replaced: bool = False,
        answers: Sequence[str | None] = (),
    ) -> tuple[LLMContextMessage, ...]:
        """Returns the context's messages for this provider: the calls of an answer in one message, each followed by its
        result, under names that providers accept, and all messages checked.

        `tools` are those of the request: calls of them keep their names. `system_replaced` omits system messages.
        `answers` has for each message of the context the id of the answer that it belongs to, or None if that is
        unknown; empty means unknown for all.
        """
        relevant: list[LLMContextMessage] = []
        known: list[str | None] = []
        for message, answer in zip(context.messages, answers or repeat(None), strict=False):
            if isinstance(message, LLMSpecificMessage) and not self._is_own(message):
                continue
            if isinstance(message, LLMSpecificMessage) and self._is_standard(message.message):
                message = message.message
            if system_replaced and isinstance(message, Mapping) and message.get("role") == "system":
                continue
            if not isinstance(message, LLMSpecificMessage):
                message = content.standard(message)
            relevant.append(message)
            known.append(answer)
        offered = {tool.name for tool in tools}
        # Before calls are moved: a call that moves up could otherwise get a result that was before it.
        gathered = gathering.gathered(pairing.matched(relevant), known)
        checked = called_names.with_accepted_names(pairing.answered(list(gathered)), offered)
        for place, message in enumerate(checked):
            if not isinstance(message, LLMSpecificMessage):
                content.check(self.provider, place, message)
        return tuple(checked)

    def tools(
        self, context: LLMContext, opted_in: Sequence[str] = ()
    ) -> tuple[tuple[Tool, ...], tuple[str, ...]]:
        """Returns the context's tools for this provider, the cancel tools last, and the functions that have one."""
        cancels = cancel_tools.offered(context.tools, opted_in)
        definitions = [*context.tools, *(schema.to_openai() for schema in cancels)]
        cancellable = tuple(cancel_tools.cancelled_by(schema.name) for schema in cancels)
        return tool_forms.tools_of(self.provider, definitions), cancellable

    def _is_own(self, message: LLMSpecificMessage) -> bool:
        """Returns whether the message belongs to this provider; `messages` omits those of others."""
        return message.llm == self.provider

    def _is_standard(self, own: object) -> bool:
        return self.own_messages_are_standard and isinstance(own, Mapping) and "role" in own


_PENALTIES = frozenset({"frequency_penalty", "presence_penalty"})
_ANYWHERE = frozenset({"model", "system_instruction", "extra"})
