"""Providers by name: entry points of the group `frameledger.providers`, of this package and of others."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import entry_points
from inspect import isfunction
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError

from frameledger.errors import ConfigurationError, NotFoundError
from frameledger_services import extras
from frameledger_services.providers.service import LLMService
from frameledger_services.providers.settings import LLMSettings
from frameledger_services.settings import PREFIX, Settings, SettingsError

GROUP = "frameledger.providers"


class NoSuchProviderError(NotFoundError):
    """No installed package has a provider of this name, or its entry point is not a provider.

    Remedy: Install the package that has it, or use one of the names that the message lists.
    """


class MissingKeyError(ConfigurationError):
    """The API key that a provider requires is not set.

    Remedy: Set the variable that the message names, or use another provider: `scripted` needs no key.
    """

    def __init__(self, provider: str, variable: str) -> None:
        self.problem = f"The provider {provider} needs a key, and {variable} is not set."
        self.remedy = f"Set {variable}, or use another provider: scripted needs no key."
        super().__init__(f"{self.problem} {self.remedy}")


def known() -> tuple[str, ...]:
    """Returns the names of all installed providers, sorted."""
    return tuple(sorted({point.name for point in entry_points(group=GROUP)}))


def create(
    name: str, settings: Settings, *, over: LLMSettings | None = None, **options: Any
) -> LLMService[Any]:
    """Returns the provider of this name, configured by the settings. It is not started.

    `over` takes precedence over the request settings in `settings`. `options` are arguments of the provider's
    constructor, such as `run_in_parallel`, and take precedence over the setting `provider_options`. Raises
    `NoSuchProviderError`, which lists the installed providers, `UnmappableError` for a setting that the provider does
    not support, and `SettingsError` for `provider_options` that its constructor does not accept.
    """
    provider = _loaded(name)
    own = _checked(name, provider, settings.options_of(name))
    below = llm_settings(settings)
    if isinstance(own.get("settings"), LLMSettings):
        below = own.pop("settings").over(below)
    defaults = {
        "settings": below if over is None else over.over(below),
        "run_in_parallel": settings.inference_run_in_parallel,
        "group_parallel_tools": settings.inference_group_parallel_tools,
        "completion_timeout_secs": settings.inference_completion_timeout_secs,
        "turn_completion": settings.inference_turn_completion,
    }
    try:
        return provider.configured(settings, **{**defaults, **own, **options})
    except TypeError as error:
        if not own:
            raise
        raise _invalid(name, str(error)) from error


def _checked(name: str, provider: type[LLMService[Any]], own: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options as the types that the provider's constructors declare: an object becomes an `LLMSettings`.
    Raises `SettingsError`, without the value, which may be a key. The constructors refuse unknown names."""
    types: dict[str, Any] = {}
    for one in reversed(provider.__mro__):
        constructor = vars(one).get("__init__")
        if isfunction(constructor):
            # A plug-in may name types that exist for type checkers only.
            with suppress(NameError):
                types |= get_type_hints(constructor)
    checked: dict[str, Any] = {}
    for option, value in own.items():
        try:
            checked[option] = TypeAdapter(types.get(option, Any)).validate_python(value)
        except ValidationError as error:
            raise _invalid(name, f"{option}: {error.errors(include_input=False)[0]['msg']}") from None
        except PydanticSchemaGenerationError:
            checked[option] = value
    return checked


def _invalid(name: str, problem: str) -> SettingsError:
    return SettingsError([f"{PREFIX}PROVIDER_OPTIONS is not valid for the provider {name!r}: {problem}."])


def require_key(name: str, settings: Settings) -> None:
    """Check that the key of the provider is set, and that the script of `scripted` can be played. Raises
    `MissingKeyError`, `NoSuchProviderError` and `ScriptError`. Sends no request."""
    variable = _loaded(name).missing(settings)
    if variable is not None:
        raise MissingKeyError(name, variable)


def _loaded(name: str) -> type[LLMService[Any]]:
    points = [point for point in entry_points(group=GROUP) if point.name == name]
    if not points:
        raise NoSuchProviderError(
            f"There is no provider {name!r}. Installed are: {', '.join(known()) or 'none'}."
        )
    point = points[0]
    try:
        with extras.needed(*({name} & extras.MODULES.keys())):
            provider = point.load()
    except extras.MissingExtraError as error:
        raise NoSuchProviderError(f"The provider {name!r} cannot be loaded: {error}.") from error
    except (ImportError, AttributeError) as error:
        raise NoSuchProviderError(
            f"The provider {name!r} is installed and cannot be loaded from {point.value}: {error}."
        ) from error
    if not (isinstance(provider, type) and issubclass(provider, LLMService)):
        raise NoSuchProviderError(
            f"The provider {name!r} is {point.value}, which is not a subclass of LLMService."
        )
    return provider


def without_request_settings(settings: Settings) -> Settings:
    """Returns the settings without request settings and without a script. A service that is created with them and then
    configured like a recorded one creates the recorded requests."""
    of_requests = {f"inference_{name}": None for name in LLMSettings.model_fields}
    return settings.model_copy(update={**of_requests, "inference_script": None})


def llm_settings(settings: Settings) -> LLMSettings:
    """Returns the request settings of this process: `inference_model`, `inference_temperature` and so on."""
    return LLMSettings(**{name: getattr(settings, f"inference_{name}") for name in LLMSettings.model_fields})
