"""`LLMService`: the base class of every provider. A request goes in, frames come out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, ClassVar, Generic, Self, TypeVar, cast

from frameledger.context import LLMContext, LLMSpecificMessage
from frameledger.frames import (
    AnyFrame,
    CancelFrame,
    EndFrame,
    LLMFullResponseEndFrame,
    LLMServiceMetadataFrame,
    LLMTextFrame,
    StartFrame,
)
from frameledger.tools import MISSING_FUNCTION_CALL_MESSAGE_TEMPLATE
from frameledger_services import cancel_tools as cancelling
from frameledger_services import logs
from frameledger_services.providers import tool_forms
from frameledger_services.providers.adapter import LLMAdapter, Prompt
from frameledger_services.providers.errors import CompletionTimeoutError, ProviderError, UnmappableError
from frameledger_services.providers.hooks import Hooks
from frameledger_services.providers.instructions import Instructions, joined
from frameledger_services.providers.openai_adapter import OpenAILLMAdapter
from frameledger_services.providers.pushing import Pushing
from frameledger_services.providers.request import Request
from frameledger_services.providers.settings import LLMSettings, settings_of_context
from frameledger_services.providers.silence import LONGEST_SILENCE, Silence
from frameledger_services.settings import Settings

COMPLETION_TIMEOUT_SECONDS = 120.0
"""Default limit of a provider's silence."""

TAdapter = TypeVar("TAdapter", bound=LLMAdapter)

_log = logs.get_logger("providers")


class LLMService(Pushing, Hooks, ABC, Generic[TAdapter]):
    """A client of a model API. One instance serves all contexts of a process and many concurrent requests.

    A provider is a subclass with an `adapter_class` that writes the request and a `_stream` method that sends it.
    `answer` yields frames to its caller, without run ids, and publishes nothing.

    Hooks (`event_handler`):

    - `on_completion_timeout(service)` is called when the provider exceeds the completion timeout.
    - `on_function_calls_started(service, function_calls)` is called before an announcement of calls is published. Calls
      of cancel tools are left out.
    - `on_connection_error(service, sentence)` is called when a connection is lost or cannot be made.
    """

    EVENTS = frozenset({"on_completion_timeout", "on_function_calls_started", "on_connection_error"})
    MISSING_FUNCTION_CALL_MESSAGE_TEMPLATE = MISSING_FUNCTION_CALL_MESSAGE_TEMPLATE

    provider: ClassVar[str]
    """The provider's name on start frames, in settings and in the entry point."""

    adapter_class: ClassVar[type[LLMAdapter]] = OpenAILLMAdapter
    """The class that writes requests. By default OpenAI's, as in Pipecat, because most APIs are compatible with it."""

    default_model: ClassVar[str | None] = None
    """The model to use if neither the context nor the service names one. If None, one of them must name it."""

    def __init__(
        self,
        *,
        settings: LLMSettings | None = None,
        run_in_parallel: bool = True,
        group_parallel_tools: bool = True,
        completion_timeout_secs: float = COMPLETION_TIMEOUT_SECONDS,
        turn_completion: str = "",
    ) -> None:
        """`run_in_parallel` and `group_parallel_tools` are copied to the announcements of calls.

        `completion_timeout_secs` is the maximum time in which nothing arrives, before the first piece and between two
        pieces. While only signs of life arrive, such as `ping` events, the limit is `LONGEST_SILENCE`. Time in which
        this process is too busy to read does not count. `turn_completion` is added to every system instruction; it
        tells the model how to mark an unfinished turn.
        """
        super().__init__()
        self.settings = settings or LLMSettings()
        self.run_in_parallel = run_in_parallel
        self.group_parallel_tools = group_parallel_tools
        self.completion_timeout_secs = completion_timeout_secs
        self.instructions = Instructions(turn_completion=turn_completion)
        self._adapter = cast(TAdapter, self.adapter_class())
        self._adapter.check_settings(self.settings)
        self._open = False
        self._has_warned_of_instructions = False

    @classmethod
    def configured(cls, settings: Settings, /, **options: Any) -> Self:
        """Returns the service for the settings of the process. `options` are arguments of the constructor.

        They include what the setting `provider_options` has for this provider, so that a plug-in needs no settings of
        its own.
        """
        return cls(**options)

    @classmethod
    def missing(cls, settings: Settings) -> str | None:
        """Returns the environment variable that is required and not set, such as that of a key; None if none is
        missing. Raises what `configured` would raise for a file that a setting names."""
        return None

    def secrets(self) -> tuple[str, ...]:
        """Returns texts, such as a key, that are removed from every published message, even if the provider repeats
        them."""
        return ()

    @property
    def server_address(self) -> tuple[str, int] | None:
        """The host and port to which requests are sent; None if it is unknown or there is none."""
        return None

    # These belong to the process, not to a context. The frames are Pipecat's and may be omitted.

    async def start(self, frame: StartFrame | None = None) -> None:
        """Open connections. Optional: otherwise the first request opens them."""
        if not self._open:
            self._open = True
            await self._connect()

    async def stop(self, frame: EndFrame | None = None) -> None:
        """Close clients and connections. Call it when no request in progress is needed any more."""
        await self.cleanup()

    async def cancel(self, frame: CancelFrame | None = None) -> None:
        """As `stop`."""
        await self.cleanup()

    async def cleanup(self) -> None:
        """Close clients and connections. Safe to call twice; `start` opens them again."""
        self._open = False
        await self._disconnect()

    async def _connect(self) -> None:
        """Open connections. Does nothing for a provider that opens them with each request."""

    async def _disconnect(self) -> None:
        """Close open connections. May be called when there are none."""

    # Building requests.

    def get_llm_adapter(self) -> TAdapter:
        """Returns the adapter that writes requests."""
        return self._adapter

    def write_with(self, adapter: TAdapter) -> None:
        """Use this adapter to write requests from now on."""
        self._adapter = adapter

    def create_llm_specific_message(self, message: Any) -> LLMSpecificMessage:
        """Returns a message in this provider's own form, for a context. Other providers omit it from requests."""
        return self._adapter.create_llm_specific_message(message)

    def append_system_instruction(self, instruction: str) -> None:
        """Append text, after a blank line, to the system instruction of every request from now on."""
        self.instructions = self.instructions.appending(instruction)

    def service_metadata_frame(self) -> LLMServiceMetadataFrame:
        """Returns the description of the service: not a realtime one. Part of Pipecat's interface; Frameledger itself
        does not publish it."""
        return LLMServiceMetadataFrame()

    def request(
        self,
        context: LLMContext,
        *,
        prompt_caching: bool | None = None,
        cancel_tools: Sequence[str] = (),
        max_tokens: int | None = None,
        system_instruction: str | None = None,
        answers: Sequence[str | None] = (),
    ) -> Request:
        """Returns the request for a context. Does no IO; equal arguments give equal bytes.

        `cancel_tools` names the asynchronous functions whose calls the model may cancel; a cancel tool is offered for
        each of them that is advertised. `max_tokens` takes precedence over both token limits of the settings.
        `system_instruction` replaces those of the service and the context; a blank one leaves the request without any.
        `answers` has for each message the id of the answer that it belongs to, as in `StoredContext`, so that the calls
        of one answer are sent together. Raises `UnmappableError`.
        """
        adapter = self._adapter
        settings = (
            settings_of_context(self.provider, context.settings).over(self.settings).limited(max_tokens)
        )
        adapter.check_settings(settings)
        model = settings.model or self.default_model
        if model is None:
            raise UnmappableError(
                self.provider,
                "a request without a model; set FRAMELEDGER_INFERENCE_MODEL or the model of the conversation",
            )
        tools, cancellable = adapter.tools(context, cancel_tools)
        system = None if system_instruction is None else joined([system_instruction])
        if system_instruction is None:
            guidance = cancelling.guidance(cancellable)
            system = self.instructions.around(settings.system_instruction, cancel_tools=guidance)
            self._warn_of_two_instructions(system, context)
        choice = tool_forms.choice_of(self.provider, context.tool_choice, tools)
        prompt = Prompt(
            model=model,
            settings=settings,
            system=system,
            messages=adapter.messages(
                context, tools, system_replaced=system_instruction is not None, answers=answers
            ),
            tools=tools,
            tool_choice=choice,
            prompt_caching=bool(prompt_caching),
        )
        body = adapter.whole_body(prompt)
        builtin = frozenset(cancelling.cancel_name(name) for name in cancellable)
        sent = body.get("model")  # `extra` may name another
        return Request.of(self.provider, sent if isinstance(sent, str) else model, body, builtin)

    def _warn_of_two_instructions(self, system: str | None, context: LLMContext) -> None:
        if system is None or self._has_warned_of_instructions:
            return
        if any(not isinstance(m, LLMSpecificMessage) and m.get("role") == "system" for m in context.messages):
            self._has_warned_of_instructions = True
            _log.warning(
                "provider.two_system_instructions",
                provider=self.provider,
            )

    # Sending requests.

    async def answer(self, request: Request) -> AsyncGenerator[AnyFrame, None]:
        """Send the request and yield the frames of the answer as they arrive.

        The order is: `LLMTextFrame`s and `LLMThought*Frame`s, then at most one `FunctionCallsStartedFrame` with all
        complete calls, then exactly one `LLMFullResponseEndFrame` with finish reason and usage. The frames have no ids.
        Closing the generator closes the stream to the provider at once.

        Raises `ProviderError` before the end frame if the answer is incomplete. Does not retry.
        """
        ended = False
        limit = Silence(self.completion_timeout_secs)
        async with aclosing(self._stream(request)) as stream:
            while not ended:
                try:
                    limit = Silence(self.completion_timeout_secs)
                    async with limit:
                        frame = await anext(stream)
                except StopAsyncIteration:
                    sentence = f"{self.provider} ended its answer without an end frame."
                    raise ProviderError(sentence) from None
                except TimeoutError:
                    if not limit.expired():
                        raise
                    break
                if frame is None:
                    continue  # a part of a frame arrived
                ended = isinstance(frame, LLMFullResponseEndFrame)
                yield frame
            else:
                return
        await self.notify("on_completion_timeout")
        secs, what = self.completion_timeout_secs, "nothing"
        if limit.had_signs:
            secs, what = max(secs, LONGEST_SILENCE), "nothing but signs of life"
        raise CompletionTimeoutError(f"{self.provider} sent {what} for {secs:g} seconds.")

    @abstractmethod
    def _stream(self, request: Request) -> AsyncGenerator[AnyFrame | None, None]:
        """Send `request.content` and yield the frames that `answer` promises. `answer` enforces the completion timeout.

        Yield None when something arrived that is not a frame yet, such as a part of a call's arguments, so that the
        completion timeout starts again. Bytes that the API's client does not pass on, such as a comment that keeps the
        connection open, are reported by `silence.hear`; `SdkLLMService` does so.

        Must release its connection when it is closed or cancelled. Raises `ProviderError`; any other error is a bug.
        """

    async def run_inference(
        self, context: LLMContext, max_tokens: int | None = None, system_instruction: str | None = None
    ) -> str | None:
        """Ask the model out of band and return its text, or None if there is none. Publishes nothing.

        The context's tools are sent, since its history may have their calls, but the model may not call any: the call
        would not run. `max_tokens` takes precedence over both limits of the settings; `system_instruction` replaces
        those of the service and the context. Raises `ProviderError`.
        """
        context = context.set_tool_choice("none")
        request = self.request(context, max_tokens=max_tokens, system_instruction=system_instruction)
        async with aclosing(self.answer(request)) as frames:
            text = "".join([frame.text async for frame in frames if isinstance(frame, LLMTextFrame)])
        return text.strip() or None
