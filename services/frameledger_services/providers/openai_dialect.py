"""The requests that a server compatible with OpenAI's chat completions accepts, with defaults by its host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Self

DeveloperRole = Literal["developer", "system", "user"]

_OPENAI = ("api.openai.com",)
_AZURE = ("openai.azure.com", "services.ai.azure.com")
_MISTRAL = ("mistral.ai",)


@dataclass(frozen=True, slots=True)
class Dialect:
    """The fields are recorded with each worker, so that its requests can be made again."""

    developer_role: DeveloperRole = "developer"
    takes_max_tokens: bool = True
    """False for servers whose newer models refuse the old name of the limit."""

    takes_extra_fields: bool = True
    """False for servers that refuse what others add to their answers."""

    short_call_ids: bool = False
    reasons_with_functions: bool = True
    """False for OpenAI, whose models that reason refuse functions."""

    user_first: bool = False
    plain_text: bool = False
    mistral_fields: bool = False
    strict_order: bool = False
    alternating: bool = False
    null_content: bool = False
    """True for OpenAI, which fails (500) over calls without the field `content` in a request with a file."""

    accepted_names: bool = True
    """False for requests of earlier versions, which sent each name as it is stored."""

    omits_empty_fields: bool = True
    """False for requests of earlier versions, which also sent null and empty lists, such as `refusal` and `annotations`
    of answers that a client kept."""

    @classmethod
    def of_host(cls, host: str) -> Self:
        """Returns the dialect of the server at a host.

        Only OpenAI and Azure know the role `developer`, refuse `max_tokens`, refuse functions to a model that reasons,
        need neither a first message of the user nor plain text, and are known to accept null for no content. They and
        Mistral accept consecutive messages of one role. OpenAI and Mistral accept no extra fields, and Mistral needs
        short ids of calls, its own field names and a strict order of messages.
        """
        is_openai, is_mistral = _is_of(host, *_OPENAI, *_AZURE), _is_of(host, *_MISTRAL)
        return cls(
            developer_role="developer" if is_openai else "user",
            takes_max_tokens=not is_openai,
            takes_extra_fields=not _is_of(host, *_OPENAI, *_MISTRAL),
            short_call_ids=is_mistral,
            reasons_with_functions=not is_openai,
            user_first=not is_openai,
            plain_text=not is_openai,
            mistral_fields=is_mistral,
            strict_order=is_mistral,
            alternating=not (is_openai or is_mistral),
            null_content=is_openai,
        )


def _is_of(host: str, *domains: str) -> bool:
    return any(host == domain or host.endswith(f".{domain}") for domain in domains)
