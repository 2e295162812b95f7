"""Reads the settings from the environment, the settings file and a running `frameledger up`.

A variable of the environment takes precedence over the file `frameledger.env` in the data directory, and that over the
addresses of a running `frameledger up` of that directory. A secret can also be read from a file, whose path is in the
variable of the same name with `_FILE`. An unknown variable with our prefix is an error: it is a typo.
"""

import difflib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from frameledger_services import data_directory, shell_words
from frameledger_services.accepted_values import accepted_values
from frameledger_services.settings import PREFIX, Settings, SettingsError
from frameledger_services.settings_masking import SECRETS
from frameledger_services.settings_rules import contradictions

FILE = "_FILE"
SETTINGS_FILE = "frameledger.env"
RUNNING = "frameledger up"
"""The source of a setting that comes from a running `up`."""
WELL_KNOWN = ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL")
"""Common variables without our prefix, which are read too. The variable with our prefix takes precedence."""

_DATA_DIR = f"{PREFIX}DATA_DIR"


@dataclass(frozen=True, slots=True)
class Loaded:
    """The effective settings and the source of each."""

    settings: Settings
    sources: Mapping[str, str]
    """By field: `environment`, `file PATH`, `frameledger up` or `default`."""

    file: Path
    """The path of the settings file, which need not exist."""


def load(environment: Mapping[str, str] | None = None, *, look_for_running: bool = True) -> Loaded:
    """Read all settings once, by default from the environment of this process. Raises `SettingsError` with all problems
    at once.

    An empty variable counts as not set. `look_for_running`: take addresses that are not set from a running
    `frameledger up` of the data directory. If no data directory is set, the working directory and its parents are
    searched for one; that in the working directory is an error if another user owns it.
    """
    variables = os.environ if environment is None else environment
    from_environment = {name: value for name, value in variables.items() if value and _is_ours(name)}
    above = None if _DATA_DIR in from_environment else _data_directory_above()
    directory = above or Path(from_environment.get(_DATA_DIR, Settings.model_fields["data_dir"].default))
    file = directory / SETTINGS_FILE
    is_named = _DATA_DIR in from_environment
    if is_named or not _is_of_another_user(directory):
        written, problems = read_file(file, of_anybody=is_named)
    else:
        written, problems = {}, [_of_another_user(directory, directory)]
    # A secret set in the environment replaces both of its forms in the file.
    from_file = {
        name: value
        for name, value in written.items()
        if not {name, _other_form(name)} & from_environment.keys()
    }
    place = dict.fromkeys(from_file, f"file {file}") | dict.fromkeys(from_environment, "environment")
    values, sources, wrong = _settings_of(from_file | from_environment, place)
    problems += wrong
    try:
        settings = Settings.model_validate(values)
    except ValidationError as error:
        raise SettingsError(
            problems + [_sentence(part, sources) for part in error.errors(include_url=False)]
        ) from None
    problems += contradictions(settings)
    if problems:
        raise SettingsError(problems)
    if above is not None:
        settings = settings.model_copy(update={"data_dir": above})
        sources["data_dir"] = f"found in {above.parent}"
    if look_for_running:
        addresses = {
            name: value
            for name, value in read_running(settings.data_dir).items()
            if getattr(settings, name, "") is None
        }
        settings = Settings.model_validate({**settings.model_dump(), **addresses})
        sources.update(dict.fromkeys(addresses, RUNNING))
    return Loaded(settings, sources, file)


def read_file(file: Path, *, of_anybody: bool = True) -> tuple[dict[str, str], list[str]]:
    """Returns the variables of a settings file and a sentence for each problem; both are empty if there is no file.

    A line is NAME=value as in a shell, quoted where the value has spaces. The file may set our variables and those of
    `WELL_KNOWN`. Unless `of_anybody`, a file that another user owns is a problem.
    """
    try:
        if not of_anybody and _is_of_another_user(file):
            return {}, [_of_another_user(file, file.parent)]
        # Only ends of lines: `splitlines` would also cut a value at characters such as U+2028.
        lines = _read_text(file).split("\n")
    except (FileNotFoundError, NotADirectoryError):
        return {}, []
    except UnicodeDecodeError as error:
        return {}, [_is_not_utf8(str(file), error)]
    except OSError as error:
        return {}, [f"{file} cannot be read: {error}."]
    variables: dict[str, str] = {}
    problems = []
    for number, line in enumerate(lines, 1):
        words = shell_words.split(line)
        if words and words[0] == "export":
            del words[0]
        if words == []:
            continue
        try:
            name, value = _assignment(words)
        except ValueError as error:
            problems.append(f"{file}, line {number}: {error}")
        else:
            if value:
                variables[name] = value
    return variables, problems


def _assignment(words: list[str] | None) -> tuple[str, str]:
    """Returns the variable that a line sets, and its value. Raises ValueError for words that are not an assignment, or
    an assignment that this file may not have."""
    name, equals, value = words[0].partition("=") if words and len(words) == 1 else ("", "", "")
    if not equals:
        # Does not quote the line: it may contain a secret.
        raise ValueError("it is not NAME=value; put a value with spaces or quotes in 'single quotes'.")
    if name == _DATA_DIR:
        raise ValueError(f"{_DATA_DIR} determines where this file is; set it in the environment.")
    if not _is_ours(name):
        raise ValueError(f"{name} is not a setting.{_suggestion(PREFIX + name)}")
    return name, value


def _read_text(file: Path) -> str:
    """Returns the text of a file that a person wrote. Windows editors start it with a byte order mark."""
    return file.read_text(encoding="utf-8-sig")


def _is_not_utf8(file: str, error: UnicodeDecodeError) -> str:
    # Neither the bytes nor their surroundings, which may be a secret.
    line = error.object.count(b"\n", 0, error.start) + 1
    return f"{file} cannot be read: line {line} is not UTF-8. Save the file as UTF-8."


def _settings_of(
    variables: Mapping[str, str], place: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str], list[str]]:
    """Returns values by field, sources by field, and problems. `place` is where each variable was set."""
    problems: list[str] = []
    values: dict[str, str] = {}
    sources = dict.fromkeys(Settings.model_fields, "default")
    for variable in WELL_KNOWN:
        if variable in variables:
            name = variable.lower()
            values[name], sources[name] = variables[variable], f"{place[variable]}, {variable}"
    for variable in sorted(name for name in variables if name.startswith(PREFIX)):
        name = variable.removeprefix(PREFIX).lower()
        if name in Settings.model_fields:
            values[name], sources[name] = variables[variable], place[variable]
        elif (secret := name.removesuffix(FILE.lower())) in SECRETS and name.endswith(FILE.lower()):
            if PREFIX + secret.upper() in variables:
                problems.append(f"{PREFIX}{secret.upper()} and {variable} are both set; unset one of them.")
                continue
            try:
                values[secret] = _secret_in(variable, variables[variable])
                sources[secret] = f"file {variables[variable]}"
            except ValueError as error:
                problems.append(str(error))
        else:
            where = "" if place[variable] == "environment" else f" ({place[variable]})"
            problems.append(f"{variable} is not a setting{where}.{_suggestion(variable)}")
    return values, sources, problems


def _secret_in(variable: str, file: str) -> str:
    """Returns the secret in a file that this variable names. Raises ValueError with the reason why it cannot be
    read."""
    try:
        return _read_text(Path(file)).rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{variable}: {_is_not_utf8(file, error)}") from None
    except OSError as error:
        raise ValueError(f"{variable} cannot be read: {error}.") from None


def _data_directory_above() -> Path | None:
    """Returns the data directory of a parent folder; None if there is none, or the working directory has one itself."""
    try:
        here = Path.cwd()
    except FileNotFoundError:
        return None
    nearest = data_directory.nearest(here)
    return None if nearest is None or nearest.parent == here else nearest


def _is_of_another_user(path: Path) -> bool:
    """Returns whether there is such a file or directory that neither this user nor root owns: its owner would decide
    where conversations are sent, which programs are run, and which are ended."""
    try:
        return path.stat().st_uid not in (os.getuid(), 0)
    except OSError:
        return False


def _of_another_user(path: Path, directory: Path) -> str:
    return f"{path} belongs to another user; to use it anyway, set {_DATA_DIR}={directory}."


def running_file(data_dir: Path) -> Path:
    """Returns the file in which a running `frameledger up` stores the addresses of its servers: a JSON object of
    settings."""
    return data_dir / "run" / "settings.json"


def read_running(data_dir: Path) -> dict[str, str]:
    """Returns the addresses of a running `up`; empty if none runs.

    An `up` that was killed leaves its file. Its ports may belong to another `up` by now, whose broker accepts every
    frame.
    """
    try:
        addresses: dict[str, str] = json.loads(running_file(data_dir).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return addresses if data_directory.is_running(data_dir) else {}


def _is_ours(variable: str) -> bool:
    return variable.startswith(PREFIX) or variable in WELL_KNOWN


def _other_form(variable: str) -> str:
    """Returns the variable of the other form of a secret: its value or its file."""
    return variable.removesuffix(FILE) if variable.endswith(FILE) else variable + FILE


def _suggestion(variable: str) -> str:
    known = [name.upper() for name in Settings.model_fields] + [name.upper() + FILE for name in SECRETS]
    close = difflib.get_close_matches(variable.removeprefix(PREFIX), known, n=1)
    return f" Did you mean {PREFIX}{close[0]}?" if close else " `frameledger config` lists all settings."


def _sentence(error: Any, sources: Mapping[str, str]) -> str:
    # Never the value, which may be a secret.
    name = str(error["loc"][0])
    source = sources.get(name, "")
    where = f" ({source})" if source.startswith("file ") else ""
    variable = f"{PREFIX}{name.upper()}{where}"
    if error["type"] == "value_error":
        # Our own, from `settings_types`.
        return f"{variable}: {error['ctx']['error']}."
    return f"{variable} takes {accepted_values(Settings, name)}."
