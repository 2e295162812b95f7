"""The model of a rerun: the changed settings, its requests, and its answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from frameledger.fold import Folding
from frameledger.frames import AnyFrame, ContextSnapshot, LLMContextFrame, LLMTextFrame
from frameledger_services.forks.original import Original
from frameledger_services.providers.out_of_band import OutOfBand
from frameledger_services.providers.request import Request


@dataclass(frozen=True, slots=True)
class Changes:
    """The settings that a rerun changes; None keeps the original."""

    model: str | None = None
    system: str | None = None


@dataclass(frozen=True, slots=True)
class ModelOutput:
    """The answer to one request, with its duration."""

    frames: tuple[AnyFrame, ...]
    seconds: float
    first_text_seconds: float | None


class RerunModel:
    """The model of a rerun, with the changes. `clock` returns seconds."""

    def __init__(self, inference: OutOfBand, changes: Changes, clock: Callable[[], float]) -> None:
        self._inference = inference
        self._changes = changes
        self._clock = clock

    def opening(self, original: Original) -> LLMContextFrame:
        """Returns the frame that begins an experiment."""
        service, changes = self._inference.service, self._changes
        wire = original.stored.context.to_wire()
        settings = dict(wire["settings"])
        recorded = None if original.answer is None else original.answer.provider
        if changes.model is not None:
            settings["model"] = changes.model
        elif recorded is not None and recorded != service.provider:
            # A model of another provider's.
            settings.pop("model", None)
        experiment = {
            "kind": "rerun",
            "run_id": None if original.answer is None else original.answer.run_id,
            "provider": service.provider,
            "model": changes.model,
            "system_instruction": changes.system,
        }
        return LLMContextFrame(
            context=ContextSnapshot(**wire | {"settings": settings}),
            react=False,
            forked_from=original.origin,
            metadata={"experiment": {name: value for name, value in experiment.items() if value is not None}},
        )

    def request(self, folding: Folding, original: Original, answers: Sequence[str | None]) -> Request:
        """Returns the request for the current state of an experiment. Raises `ProviderError`."""
        return self._inference.service.request(
            folding.conversation().context,
            prompt_caching=original.stored.prompt_caching,
            system_instruction=self._changes.system,
            answers=answers,
        )

    async def ask(self, request: Request) -> ModelOutput:
        """Returns the complete answer to one request. Retries if the provider is unavailable."""

        async def once() -> ModelOutput:
            began = self._clock()
            first_text: float | None = None
            frames: list[AnyFrame] = []
            async with aclosing(self._inference.service.answer(request)) as answer:
                async for frame in answer:
                    if first_text is None and isinstance(frame, LLMTextFrame) and frame.text:
                        first_text = self._clock() - began
                    _join(frames, frame)
            return ModelOutput(tuple(frames), self._clock() - began, first_text)

        return await self._inference.retrying(once)

    def without_secrets(self, sentence: str) -> str:
        """Returns a provider's message without the key, which the message may contain."""
        for secret in self._inference.service.secrets():
            sentence = sentence.replace(secret, "...")
        return sentence


def _join(frames: list[AnyFrame], frame: AnyFrame) -> None:
    """Add a frame, and join it with the previous one if both are pieces of text."""
    if frames and type(frame) is LLMTextFrame and type(last := frames[-1]) is LLMTextFrame:
        frames[-1] = last.model_copy(update={"text": last.text + frame.text})
    else:
        frames.append(frame)
