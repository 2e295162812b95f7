"""`LLMSettings`: the settings of a request, independent of the provider."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from frameledger.fold_settings import FOLD_SETTINGS
from frameledger_services.accepted_values import accepted_values
from frameledger_services.providers.errors import UnmappableError

NOT_REQUESTED = FOLD_SETTINGS | {"noted"}
"""Keys of a context's settings that are no part of a request: those that the fold reads, and the notes that Pipecat's
observer keeps there."""


class LLMSettings(BaseModel):
    """Settings of a service, of a conversation, or of one request. None means that the setting is not set here.

    A provider's adapter rejects settings that it does not support, by name. No setting is ignored silently.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    model: str | None = Field(None, min_length=1)
    system_instruction: str | None = None
    temperature: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=0)] | None = None
    frequency_penalty: Annotated[float, Field(allow_inf_nan=False)] | None = None
    presence_penalty: Annotated[float, Field(allow_inf_nan=False)] | None = None
    seed: int | None = None

    extra: Mapping[str, Any] | None = None
    """Fields that are added to the provider's request unchanged. They replace fields that the adapter writes."""

    def over(self, lower: LLMSettings) -> LLMSettings:
        """Returns these settings, with each None replaced by the value of `lower`. `extra` is merged key by key."""
        own = self.model_dump(exclude_none=True)
        merged = lower.model_dump(exclude_none=True) | own
        if self.extra is not None and lower.extra is not None:
            merged["extra"] = {**lower.extra, **self.extra}
        return LLMSettings(**merged)

    def limited(self, max_tokens: int | None) -> LLMSettings:
        """Returns the settings with this token limit in place of those that are set; unchanged for None."""
        if max_tokens is None:
            return self
        named = [name for name in ("max_tokens", "max_completion_tokens") if getattr(self, name) is not None]
        return self.model_copy(update=dict.fromkeys(named or ["max_tokens"], max_tokens))


def settings_of_context(provider: str, settings: Mapping[str, Any]) -> LLMSettings:
    """Returns a context's settings. Raises `UnmappableError` for an unknown key or an invalid value, and names it."""
    values = {name: value for name, value in settings.items() if name not in NOT_REQUESTED}
    try:
        return LLMSettings.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        name = str(first["loc"][0])
        if first["type"] == "extra_forbidden":
            reason = (
                f"the unknown setting {name} of the conversation (put the provider's own settings into `extra`; an "
                "LLMUpdateSettingsFrame with null removes it)"
            )
        else:
            reason = f"the setting {name} of the conversation (it takes {accepted_values(LLMSettings, name)})"
        raise UnmappableError(provider, reason) from None
