"""The request of a client: the fields of `RunAgentInput` that are used.

Fields that the protocol does not describe are ignored, since a newer client may send them. A described field with an
invalid value is refused before the run begins.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from frameledger import strict_json
from frameledger.decode_error import DecodeError
from frameledger_services.gateway.problems import ProblemError

Name = Annotated[str, Field(min_length=1, max_length=255, pattern=r"^[^\x00]*$")]
Key = Annotated[str, Field(pattern=r"^[^\x00]*$")]
"""Both are used in queries, so they have no NUL and no unpaired surrogate: the pattern makes pydantic refuse these."""


class _Input(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)


class Function(_Input):
    """The function of a call, and its arguments."""

    name: str
    arguments: str


class SentCall(_Input):
    """A call of a message."""

    id: str
    type: Literal["function"] = "function"
    function: Function


class Message(_Input):
    """A message of any role, on which its fields depend."""

    id: str
    role: Literal["developer", "system", "assistant", "user", "tool", "activity", "reasoning"]
    content: str | list[dict[str, Any]] | dict[str, Any] | None = None
    name: str | None = None
    tool_calls: list[SentCall] | None = Field(None, alias="toolCalls")
    tool_call_id: Key | None = Field(None, alias="toolCallId")
    error: str | None = None


class Tool(_Input):
    """A function of the client. Whether it can be offered to a model is checked later (`client_tools`)."""

    name: str
    description: str | None = None
    parameters: Any = None


class Context(_Input):
    """Context that the application gives the model."""

    description: str
    value: str


class Resume(_Input):
    """An answer to an interrupt."""

    interrupt_id: Key = Field(alias="interruptId")
    status: Literal["resolved", "cancelled"]
    payload: Any = None
    metadata: dict[str, Any] | None = None


class RunInput(_Input):
    """The body of a request."""

    thread_id: Name = Field(alias="threadId")
    run_id: Name = Field(alias="runId")
    parent_run_id: str | None = Field(None, alias="parentRunId")
    messages: list[Message]
    tools: list[Tool] | None = None
    context: list[Context] | None = None
    forwarded_props: Any = Field(None, alias="forwardedProps")
    resume: list[Resume] | None = None

    @property
    def conversation(self) -> list[Message]:
        """The messages, without those that are only for the client."""
        return [one for one in self.messages if one.role not in ("activity", "reasoning")]


def read(body: bytes) -> RunInput:
    """Parse a body. Raises `bad-parameter`."""
    try:
        # Not pydantic's parser, which refuses unpaired surrogates: a history may have them, and our messages too.
        return RunInput.model_validate(strict_json.loads(body))
    except DecodeError as error:
        raise ProblemError("bad-parameter", f"RunAgentInput: the body: {error}.") from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"])) or "the body"
        raise ProblemError("bad-parameter", f"RunAgentInput: {place}: {first['msg']}.") from None
