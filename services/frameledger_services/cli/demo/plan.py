"""The plan of one demo: its conversations, its model and the services that answer."""

from __future__ import annotations

from dataclasses import dataclass

from frameledger.ids import ContextId
from frameledger_services.cli.terminal import output
from frameledger_services.demo import recording
from frameledger_services.settings import Settings

TOOLS = "frameledger_services.demo.tools"


@dataclass(frozen=True, slots=True)
class DemoPlan:
    """One demo. Its services have unique names, so that they serve only its conversations."""

    settings: Settings
    provider: str
    wanted_model: str | None
    speed: float
    name: str

    @property
    def context_id(self) -> ContextId:
        return ContextId(f"demo-{self.name}")

    @property
    def second_id(self) -> ContextId:
        """The conversation that is erased."""
        return ContextId(f"{self.context_id}-forgotten")

    @property
    def model(self) -> str:
        """The name of the real model, or a unique name for the scripted one, which accepts any."""
        if self.wanted_model is not None:
            return self.wanted_model
        return (
            f"night-owl-{self.name}"
            if self.provider == "scripted"
            else _default_model(self.settings, self.provider)
        )

    @property
    def function_service(self) -> str:
        """The service whose worker executes the functions."""
        return f"{self.context_id}.functions"

    @property
    def workers(self) -> dict[str, tuple[str, ...]]:
        """The commands of the inference and function services, by name."""
        inference, functions = f"{self.context_id}.inference", self.function_service
        script = ("--script", str(recording.SCRIPT)) if self.provider == "scripted" else ()
        model = ("--model", self.model, "--models", self.model)
        return {
            inference: (
                *("run", "inference", "--service", inference),
                *("--provider", self.provider, *model, *script),
            ),
            functions: ("run", "functions", "--service", functions, "--module", TOOLS),
        }


def _default_model(settings: Settings, provider: str) -> str:
    from frameledger_services.providers import plugins

    model = plugins.create(provider, plugins.without_request_settings(settings)).default_model
    return model or output.fail(f"The provider {provider} has no default model.", "Choose one with --model.")
