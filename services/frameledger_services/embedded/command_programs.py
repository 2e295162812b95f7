"""The commands that `up` runs, each as a program: its ports, its environment, and when it is ready."""

import http
import http.client
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from secrets import token_hex

from frameledger_services.embedded import ports
from frameledger_services.embedded.directory import working_directory
from frameledger_services.embedded.program import Program
from frameledger_services.settings import PREFIX, Settings

READY_SECONDS = 2.0
"""Timeout of `/readyz` in seconds; it is requested again."""

LEAVE_SECONDS = 15.0
"""What a service needs to stop after it has drained: to settle its work, and to leave its group and the database."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command of our command line that `up` runs in its own process."""

    name: str
    arguments: tuple[str, ...]
    preferred_port: int | None = None
    """Its HTTP port, unless the setting `NAME_port` has another (`CommandPrograms.port`). It is ready when it accepts
    connections."""

    metrics_port: int | None = None
    """Port of its `/metrics`, if it is free. It is ready when its `/readyz` there reports so."""

    before_kafka: bool = False
    """Whether it needs only the database: then it runs while Kafka starts."""


def stop_secs(settings: Settings) -> float:
    """Returns how long a service may take to stop: one that is killed before leaves its work to the next start."""
    return (
        max(settings.work_drain_secs + settings.work_grace_secs, settings.gateway_drain_secs) + LEAVE_SECONDS
    )


class CommandPrograms:
    """The programs of one data directory. `environment` has the settings that the running servers determine."""

    def __init__(self, settings: Settings, directory: Path, environment: Mapping[str, str]) -> None:
        self._settings = settings
        self._directory = directory
        self._environment = environment

    def program(self, command: Command) -> Program:
        """Returns the program that runs a command, with ports of its own. It is ready when its ports answer."""
        # A service has one process at a time, so a new one can take its predecessor's place in a consumer group.
        ours = {
            "projector_instance_id": self._settings.projector_instance_id or self._instance_id(),
            "data_dir": str(self._directory),
            "metrics_host": ports.HOST,
        }
        address = None
        readiness: list[Callable[[], bool]] = []
        listening: list[Callable[[], bool]] = []
        if command.preferred_port is not None:
            configured_port = getattr(self._settings, f"{command.name}_port")
            port = self.port(command.name, configured_port, command.preferred_port)
            ours[f"{command.name}_port"] = str(port)
            address = f"http://{ports.HOST}:{port}"
            listening.append(partial(ports.answers, port))
        metrics = None
        if command.metrics_port is not None:
            port = self.port(f"{command.name}_metrics", None, command.metrics_port)
            ours["metrics_port"] = str(port)
            metrics = f"http://{ports.HOST}:{port}/metrics"
            listening.append(partial(ports.answers, port))
            readiness.append(partial(_reports_ready, port))
        return Program(
            name=command.name,
            argv=(sys.executable, "-m", "frameledger_services", *command.arguments),
            directory=working_directory(self._directory),
            log=self._directory / "logs" / f"{command.name}.log",
            environment={
                f"{PREFIX}{name.upper()}": value for name, value in (dict(self._environment) | ours).items()
            },
            address=address,
            metrics=metrics,
            # A service without an address is ready when it runs.
            is_ready=partial(_all, (*listening, *readiness)),
            is_back=partial(_all, listening),
            may_be_forked=True,
            stop_within=stop_secs(self._settings),
        )

    def port(self, name: str, configured: int | None, preferred: int) -> int:
        """Returns the port of a program, and stores it: the configured one; else the one that the program had last, so
        that clients keep working; else the preferred one or one above it; any free one if that is in use. Raises
        `EmbeddedError` if the configured port is in use."""
        file = self._directory / "run" / f"{name}.port"
        if configured is None:
            preferred = _stored_port(file) or preferred
            # A service that was not here before, such as the inference once a provider is set, would otherwise take the
            # port that a later one had: both would get it, as it is free until the first of them listens.
            others = {_stored_port(other) for other in file.parent.glob("*.port") if other != file}
            while preferred in others:
                preferred += 1
        setting = f"{PREFIX}{name.upper()}_PORT"
        port = ports.choose(configured or preferred, explicit=configured is not None, setting=setting)
        file.write_text(str(port), encoding="ascii")
        return port

    def _instance_id(self) -> str:
        """Returns a unique name for this directory in characters that Kafka accepts. It is generated once and stored,
        because machines may share a host name and a Kafka."""
        file = self._directory / "run" / "name"
        with suppress(OSError, ValueError):
            if name := file.read_text(encoding="ascii").strip():
                return name
        name = f"up-{token_hex(8)}"
        file.write_text(name, encoding="ascii")
        return name


def _stored_port(file: Path) -> int | None:
    """Returns the port that a program of this directory had last, or None if it had none."""
    try:
        return int(file.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def _all(questions: Sequence[Callable[[], bool]]) -> bool:
    return all(question() for question in questions)


def _reports_ready(port: int) -> bool:
    """Returns whether a service is ready, according to its `/readyz` at this port."""
    connection = http.client.HTTPConnection(ports.HOST, port, timeout=READY_SECONDS)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
