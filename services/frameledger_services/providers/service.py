"""`LLMService`: one request in, frames out. The base of every provider."""

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
from frameledger_services.providers.instructions import Instructions
from frameledger_services.providers.openai_adapter import OpenAILLMAdapter
from frameledger_services.providers.pushing import Pushing
from frameledger_services.providers.request import Request
from frameledger_services.providers.settings import LLMSettings, settings_of_context
from frameledger_services.providers.silence import Silence
from frameledger_services.settings import Settings

COMPLETION_TIMEOUT_SECONDS = 120.0
"""Default limit of a provider's silence."""

TAdapter = TypeVar("TAdapter", bound=LLMAdapter)

_log = logs.get_logger("providers")


class LLMService(Pushing, Hooks, ABC, Generic[TAdapter]):
    """A model behind an API. One instance serves all contexts of a process, many requests at once.

    A provider is a subclass with an `adapter_class` that writes the request and a `_stream` that sends it. Nothing
    here publishes: frames go to the caller, and carry no run ids.

    Hooks (`event_handler`): `on_completion_timeout(service)` when a provider was silent for too long,
    `on_function_calls_started(service, function_calls)` where an announcement is about to be published, without the
    cancel tools, and `on_connection_error(service, sentence)` when a connection was lost.
    """

    EVENTS = frozenset({"on_completion_timeout", "on_function_calls_started", "on_connection_error"})
    MISSING_FUNCTION_CALL_MESSAGE_TEMPLATE = MISSING_FUNCTION_CALL_MESSAGE_TEMPLATE

    provider: ClassVar[str]
    """The name on start frames, in settings and in the entry point."""

    adapter_class: ClassVar[type[LLMAdapter]] = OpenAILLMAdapter
    """Writes the requests. Pipecat's default, since most APIs speak as OpenAI's does."""

    default_model: ClassVar[str | None] = None
    """The model, if neither the context nor the service names one. None: then one of them must."""

    def __init__(
        self,
        *,
        settings: LLMSettings | None = None,
        run_in_parallel: bool = True,
        group_parallel_tools: bool = True,
        completion_timeout_secs: float = COMPLETION_TIMEOUT_SECONDS,
        turn_completion: str = "",
    ) -> None:
        """`run_in_parallel` and `group_parallel_tools` are written on the announcements of calls.

        `completion_timeout_secs` limits the provider's silence: until its first piece, and between two. What
        this process is too busy to hear does not count.
        `turn_completion` is a part of every system instruction: how the model shall tell an unfinished turn.
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
        self._told_of_two_instructions = False

    @classmethod
    def configured(cls, settings: Settings, /, **options: Any) -> Self:
        """The service as the settings of the process describe it; `options` are arguments of the constructor.

        `options` hold what `provider_options` has for this provider too, so that a plug-in needs no settings of ours.
        """
        return cls(**options)

    @classmethod
    def missing(cls, settings: Settings) -> str | None:
        """The variable without which nothing that `configured` makes of these settings is answered, such as that of a
        key; None if there is none."""
        return None

    def secrets(self) -> tuple[str, ...]:
        """Returns what no published message may hold, such as a key, even if the provider repeats it."""
        return ()

    @property
    def server_address(self) -> tuple[str, int] | None:
        """The host and the port that requests go to; None if there is none, or nobody says it."""
        return None

    # Life of the process, not of a context: the frames are Pipecat's and may be left out.

    async def start(self, frame: StartFrame | None = None) -> None:
        """Open what requests need. Requests may be answered without it: then the first one opens it."""
        if not self._open:
            self._open = True
            await self._connect()

    async def stop(self, frame: EndFrame | None = None) -> None:
        """Close, once the requests that are being answered no longer matter to the caller."""
        await self.cleanup()

    async def cancel(self, frame: CancelFrame | None = None) -> None:
        """Close at once."""
        await self.cleanup()

    async def cleanup(self) -> None:
        """Close clients and connections. Safe to call twice; `start` opens again."""
        self._open = False
        await self._disconnect()

    async def _connect(self) -> None:
        """Open connections. A provider that opens them with each request has nothing to do."""

    async def _disconnect(self) -> None:
        """Close what is open. May be called when nothing is."""

    # What a request is made of.

    def get_llm_adapter(self) -> TAdapter:
        """The adapter instance, which writes requests."""
        return self._adapter

    def write_with(self, adapter: TAdapter) -> None:
        """Have requests written by this adapter from now on."""
        self._adapter = adapter

    def create_llm_specific_message(self, message: Any) -> LLMSpecificMessage:
        """A message in this provider's own shape, for a context; other providers leave it out."""
        return self._adapter.create_llm_specific_message(message)

    def append_system_instruction(self, instruction: str) -> None:
        """Add text after the base instruction, joined by a blank line, for every request from now on."""
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
        """The request for a context: no IO, and equal arguments give equal bytes.

        `cancel_tools` names the asynchronous functions whose calls the model may cancel; of these, the advertised ones
        get their tool. `max_tokens` outranks both token limits of the settings. `system_instruction` replaces the
        service's and the context's. `answers` names for each message the answer that it is of, as `StoredContext` has
        it, so that an answer's calls go out together. Raises `UnmappableError`.
        """
        return self._request(
            context,
            prompt_caching=prompt_caching,
            cancel_tools=cancel_tools,
            max_tokens=max_tokens,
            system_instruction=system_instruction,
            answers=answers,
        )

    def _request(
        self,
        context: LLMContext,
        *,
        prompt_caching: bool | None,
        cancel_tools: Sequence[str],
        max_tokens: int | None,
        system_instruction: str | None,
        answers: Sequence[str | None] = (),
        calls_allowed: bool = True,
    ) -> Request:
        adapter = self._adapter
        settings = (
            settings_of_context(self.provider, context.settings).over(self.settings).limited(max_tokens)
        )
        adapter.check_settings(settings)
        model = settings.model or self.default_model
        if model is None:
            raise UnmappableError(
                self.provider, "a request without a model; set FRAMELEDGER_INFERENCE_MODEL or the context's"
            )
        tools, cancellable = adapter.tools(context, cancel_tools)
        system = system_instruction
        if system is None:
            guidance = cancelling.guidance(cancellable)
            system = self.instructions.around(settings.system_instruction, cancel_tools=guidance)
            self._warn_of_two_instructions(system, context)
        choice = tool_forms.choice_of(self.provider, context.tool_choice if calls_allowed else "none", tools)
        prompt = Prompt(
            model=model,
            settings=settings,
            system=system,
            messages=adapter.messages(
                context, system_replaced=system_instruction is not None, answers=answers
            ),
            tools=tools,
            tool_choice=choice,
            prompt_caching=bool(prompt_caching),
        )
        body = {**adapter.body(prompt), **adapter.extra(settings.extra or {})}
        builtin = frozenset(cancelling.cancel_name(name) for name in cancellable)
        sent = body.get("model")  # `extra` may name another
        return Request.of(self.provider, sent if isinstance(sent, str) else model, body, builtin)

    def _warn_of_two_instructions(self, system: str | None, context: LLMContext) -> None:
        if system is None or self._told_of_two_instructions:
            return
        if any(not isinstance(m, LLMSpecificMessage) and m.get("role") == "system" for m in context.messages):
            self._told_of_two_instructions = True
            _log.warning(
                "provider.two_system_instructions",
                provider=self.provider,
            )

    # Asking.

    async def answer(self, request: Request) -> AsyncGenerator[AnyFrame, None]:
        """Send the request and yield the answer's frames as they come.

        First `LLMTextFrame`s and `LLMThought*Frame`s in their order, then at most one `FunctionCallsStartedFrame` with
        whole calls in their order, then exactly one `LLMFullResponseEndFrame` with finish reason and usage. None of
        them has ids. Closing the generator closes the stream at the provider, at once.

        Raises `ProviderError`, before the end frame: the answer is then incomplete. Nothing is tried twice here.
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
                    continue  # it works, and has nothing to tell yet
                ended = isinstance(frame, LLMFullResponseEndFrame)
                yield frame
            else:
                return
        await self.notify("on_completion_timeout")
        raise CompletionTimeoutError(
            f"{self.provider} said nothing for {self.completion_timeout_secs:g} seconds."
        )

    @abstractmethod
    def _stream(self, request: Request) -> AsyncGenerator[AnyFrame | None, None]:
        """Send `request.content` and yield the frames that `answer` promises; its time limit is not yours to keep.

        None instead of a frame means that something arrived that is no frame yet, such as arguments of a call, which
        may take longer than silence may last.

        Must hold no connection once it is closed or cancelled. Raises `ProviderError`s; others are bugs.
        """

    async def run_inference(
        self, context: LLMContext, max_tokens: int | None = None, system_instruction: str | None = None
    ) -> str | None:
        """Ask the model out of band and return its text, or None if there is none. Publishes nothing.

        The context's tools are sent, since its history may hold their calls, but the model may not call any: the call
        would not be run. `max_tokens` outranks both limits of the settings; `system_instruction` replaces the service's
        and the context's. Raises `ProviderError`.
        """
        request = self._request(
            context,
            prompt_caching=None,
            cancel_tools=(),
            max_tokens=max_tokens,
            system_instruction=system_instruction,
            calls_allowed=False,
        )
        async with aclosing(self.answer(request)) as frames:
            text = "".join([frame.text async for frame in frames if isinstance(frame, LLMTextFrame)])
        return text.strip() or None
