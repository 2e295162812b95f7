"""The image and the compose file, checked as far as possible without a container engine."""

import fnmatch
import json
import re
import subprocess
import sys
import tomllib
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import ClassVar

import pytest
import yaml  # type: ignore[import-untyped]  # MkDocs brings it
from tests.unit import plain_yaml
from typer.testing import CliRunner

from frameledger_services.cli import application
from frameledger_services.embedded.broker_settings import broker_settings
from frameledger_services.settings import PREFIX, Settings
from frameledger_services.settings_masking import SECRETS
from frameledger_services.settings_sources import load

ROOT = Path(__file__).resolve().parents[2]
COMPOSE = plain_yaml.read((ROOT / "infra" / "compose.yaml").read_text(encoding="utf-8"))
SERVICES = COMPOSE["services"]
OURS = {name: service for name, service in SERVICES.items() if service["image"].startswith("frameledger:")}
# A version down to its last number, so that the same file is the same software next year.
PINNED = re.compile(r"[a-z]+(/[a-z]+)?:\d+\.\d+(\.\d+)?(-[a-z]+)*")
SECRETS_FOLDER = "/run/secrets/"
# The broker's addresses and places are the composition's own; everything else is one decision for both brokers.
WHERE = {
    "inter.broker.listener.name",
    "advertised.listeners",
    "controller.quorum.voters",
    "listener.security.protocol.map",
    "listeners",
    "log.dirs",
}


@pytest.mark.parametrize(
    "text",
    [
        "a: b",
        "a: yes",
        "a: &anchor 1",
        "a: 'one'",
        'a: "one" # two',
        "a:\n- 1\n  b: 2",
        "a:",
        "a:\nb: 1",
        "a: 1\na: 2",
        "a:\n  b: 1\n c: 2",
        "a:\n  - 1\n  b: 2",
        "\ta: 1",
    ],
)
def test_the_reader_refuses_what_is_not_plain(text):
    with pytest.raises(ValueError, match=r"line \d|nothing stands"):
        plain_yaml.read(text)


def test_the_reader_reads_what_is_plain():
    text = '# x\na:\n  b: "c: d"\n\n  e:\n    - "f"\n    - 2\n  g: {}\nh: ["i", "j"]\n'
    assert plain_yaml.read(text) == {"a": {"b": "c: d", "e": ["f", 2], "g": {}}, "h": ["i", "j"]}


def test_the_composition_has_the_servers_and_the_services():
    assert SERVICES.keys() >= {
        "kafka",
        "postgres",
        "migrate",
        "topics",
        "projector",
        "timekeeper",
        "inference",
        "gateway",
    }
    assert OURS.keys() == SERVICES.keys() - {"kafka", "postgres"}


def test_every_image_is_pinned_to_an_exact_version():
    images = [service["image"] for service in SERVICES.values()]
    images += [arguments.split()[0] for name, arguments in instructions() if name == "FROM"]
    assert [image for image in images if not PINNED.fullmatch(image)] == []
    assert len({arguments.split()[0] for name, arguments in instructions() if name == "FROM"}) == 1


def test_our_image_has_our_version_and_is_built_in_one_place():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {service["image"] for service in OURS.values()} == {f"frameledger:{project['version']}"}
    builds = [service["build"] for service in SERVICES.values() if "build" in service]
    assert builds == [{"context": "..", "dockerfile": "infra/Dockerfile"}]


def test_both_brokers_are_of_one_version_and_told_the_same():
    lock = tomllib.loads((ROOT / "infra" / "kafka-jars.lock.toml").read_text(encoding="utf-8"))
    assert SERVICES["kafka"]["image"] == f"apache/kafka:{lock['kafka']}"
    told = {
        name.removeprefix("KAFKA_").lower().replace("_", "."): value
        for name, value in SERVICES["kafka"]["environment"].items()
        if name.startswith("KAFKA_")
    }
    embedded = broker_settings(Path("data"), 1, controller_port=2)
    differing = {name: value for name, value in told.items() if embedded.get(name) != value}
    assert differing.keys() == WHERE


@pytest.mark.parametrize("name", OURS)
def test_the_settings_of_each_service_are_settings_in_force(name, tmp_path):
    environment = dict(OURS[name]["environment"])
    for variable, value in OURS[name]["environment"].items():
        assert variable.startswith(PREFIX)
        if value.startswith(SECRETS_FOLDER):
            file = tmp_path / value.removeprefix(SECRETS_FOLDER)
            file.write_text("hush\n", encoding="utf-8")
            environment[variable] = str(file)
    loaded = load(environment, look_for_running=False)
    assert {source for source in loaded.sources.values() if source != "default"}


def test_every_variable_of_ours_anywhere_in_this_room_is_a_setting():
    files = [
        path for path in (ROOT / "infra").rglob("*") if path.suffix in {".yaml", ".md", ""} and path.is_file()
    ]
    named = {
        variable
        for path in files
        for variable in re.findall(rf"{PREFIX}([A-Z_]+)\b", path.read_text(encoding="utf-8"))
    }
    known = {name.upper() for name in Settings.model_fields} | {f"{name.upper()}_FILE" for name in SECRETS}
    assert named - known == set()


def test_secrets_are_files_that_no_image_no_wheel_and_no_commit_takes_in():
    files = {name: (ROOT / "infra" / secret["file"]).resolve() for name, secret in COMPOSE["secrets"].items()}
    assert files
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    for file in files.values():
        inside = file.relative_to(ROOT)
        assert f"{inside.parent.as_posix()}/" in ignored
        assert not lets_in(inside.as_posix())
        assert not file.is_relative_to(ROOT / "infra")
    for name, service in SERVICES.items():
        used = {
            value.removeprefix(SECRETS_FOLDER)
            for value in service["environment"].values()
            if "secrets" in value
        }
        assert used == set(service.get("secrets", [])) <= files.keys(), name
        in_clear = [key for key in service["environment"] if "PASSWORD" in key and not key.endswith("_FILE")]
        assert in_clear == [], name


@pytest.mark.parametrize("name", OURS)
def test_each_service_of_ours_is_a_command_that_takes_these_arguments(name):
    assert exit_code(OURS[name]["command"]) == 0


def test_a_command_that_is_not_there_would_be_noticed():
    assert exit_code(["run", "nothing"]) == 2
    assert exit_code(["topics", "--crate"]) == 2


def test_what_a_service_waits_for_tells_when_it_is_there():
    for name, service in SERVICES.items():
        for other, how in service.get("depends_on", {}).items():
            waited_for = SERVICES[other]
            if how["condition"] == "service_healthy":
                assert waited_for["healthcheck"]["test"][0] == "CMD", name
            else:
                assert how["condition"] == "service_completed_successfully"
                assert "restart" not in waited_for, f"{other} would never be complete"


def test_everything_listens_for_this_machine_only():
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert ports
    assert [port for port in ports if not port.startswith("127.0.0.1:")] == []


def test_prometheus_collects_from_each_service_that_runs():
    """Where it listens in its container, which no port of the machine leads to."""
    [job] = yaml.safe_load((ROOT / "infra" / "prometheus.yaml").read_text())["scrape_configs"]
    [found] = job["dns_sd_configs"]
    running = {name: service for name, service in OURS.items() if service["command"][0] == "run"}
    assert set(found["names"]) == running.keys()
    for name, service in running.items():
        environment = service["environment"]
        assert environment["FRAMELEDGER_METRICS_HOST"] == "0.0.0.0", name
        assert environment["FRAMELEDGER_METRICS_PORT"] == str(found["port"]), name
        assert not [one for one in service.get("ports", []) if one.endswith(f":{found['port']}")], name
    asked = re.findall(r'up\{job="([^"]+)"\}', (ROOT / "infra" / "alerts.yaml").read_text())
    assert set(asked) == {job["job_name"]}


def test_the_gateway_has_tokens_and_its_health_is_asked_where_it_listens():
    gateway = SERVICES["gateway"]
    assert "FRAMELEDGER_GATEWAY_TOKENS_FILE" in gateway["environment"]
    port = gateway["environment"]["FRAMELEDGER_GATEWAY_PORT"]
    assert gateway["ports"] == [f"127.0.0.1:{port}:{port}"]
    program, *arguments = gateway["healthcheck"]["test"][1:]
    assert (program, arguments[0]) == ("python", "-c")
    with HTTPServer(("127.0.0.1", 0), Health) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            asked = arguments[1].replace(port, str(server.server_port))
            ends = [
                subprocess.run([sys.executable, "-c", asked], capture_output=True, check=False).returncode
                for Health.status in (200, 503)
            ]
        finally:
            server.shutdown()
            thread.join()
    assert Health.paths == {"/readyz"}
    assert ends == [0, 1]


class Health(BaseHTTPRequestHandler):
    """Answers a status, and notes what it was asked for."""

    status = 200
    paths: ClassVar[set[str]] = set()

    def do_GET(self):
        self.paths.add(self.path)
        self.send_response(self.status)
        self.end_headers()

    def log_message(self, *_):
        """Says nothing."""


def test_what_must_outlive_a_container_lies_on_a_volume():
    places = [volume.split(":") for service in SERVICES.values() for volume in service.get("volumes", [])]
    assert {volume for volume, _ in places} == COMPOSE["volumes"].keys()
    assert SERVICES["kafka"]["environment"]["KAFKA_LOG_DIRS"] in {place for _, place in places}


def test_the_image_copies_only_what_exists_and_what_the_context_lets_in():
    copied = sources()
    assert copied
    assert [source for source in copied if not (ROOT / source).exists()] == []
    assert [source for source in copied if not lets_in(source)] == []


def test_the_context_lets_in_nothing_that_the_image_does_not_copy():
    allowed = [line[1:] for line in ignore_lines() if line.startswith("!")]
    assert sorted(allowed) == sorted(sources())
    for never in (
        ".git",
        ".venv",
        ".frameledger",
        "tests",
        "infra/__pycache__",
        "migrations/sql/__pycache__",
    ):
        assert not lets_in(never), never


def test_the_image_copies_all_that_the_wheel_is_built_from():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {"pyproject.toml", project["project"]["readme"], *project["project"]["license-files"]}
    assert needed | set(wheel["packages"]) | wheel["force-include"].keys() <= set(sources())


def test_the_image_installs_the_lock_with_its_hashes_before_anything_of_ours():
    found = instructions()
    installs = [
        json.loads(arguments) for name, arguments in found if name == "RUN" and '"install"' in arguments
    ]
    assert [one[:2] for one in installs] == [["pip", "install"]] * 2
    locked, ours = installs
    assert "--require-hashes" in locked
    assert locked[-2:] == ["-r", "requirements.lock"]
    # Nothing is fetched that the lock does not name.
    assert {"--no-deps", "--no-build-isolation"} <= set(ours)


def test_the_image_runs_our_command_as_a_user_without_rights():
    found = instructions()
    last_stage = found[max(index for index, (name, _) in enumerate(found) if name == "FROM") :]
    users = [arguments for name, arguments in last_stage if name == "USER"]
    assert users
    assert all(int(user) > 0 for user in users)
    assert ("ENTRYPOINT", '["frameledger"]') in last_stage
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert "frameledger" in project["scripts"]


def test_every_run_of_the_image_needs_no_shell():
    for name, arguments in instructions():
        if name in {"RUN", "CMD", "ENTRYPOINT"}:
            assert json.loads(arguments), arguments


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile's instructions, one a line: no continued lines, no heredocs, no arguments of the build."""
    lines = (ROOT / "infra" / "Dockerfile").read_text(encoding="utf-8").splitlines()
    found = [line.split(" ", 1) for line in lines if line and not line.startswith("#")]
    known = {"FROM", "RUN", "ENV", "WORKDIR", "COPY", "USER", "ENTRYPOINT", "CMD"}
    assert [line for line in found if len(line) != 2 or line[0] not in known or line[1].endswith("\\")] == []
    return [(name, arguments) for name, arguments in found]


def sources() -> list[str]:
    """What the Dockerfile copies from the repository."""
    return [
        source
        for name, arguments in instructions()
        if name == "COPY" and not arguments.startswith("--from=")
        for source in arguments.split()[:-1]
    ]


def ignore_lines() -> list[str]:
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def lets_in(path: str) -> bool:
    """Whether `.dockerignore` leaves a path in the context: the last line that matches it or a folder of it decides."""
    inside = True
    whole = Path(path)
    folders = [whole, *whole.parents]
    for line in ignore_lines():
        pattern = line.removeprefix("!").split("/")
        if pattern[0] == "**":
            matches = any(fnmatch.fnmatchcase(part, pattern[1]) for part in whole.parts)
        else:
            matches = any(
                len(folder.parts) == len(pattern) and all(map(fnmatch.fnmatchcase, folder.parts, pattern))
                for folder in folders
            )
        if matches:
            inside = line.startswith("!")
    return inside


def exit_code(arguments: list[str]) -> int:
    """How the command line takes these arguments: 0 if it knows them all. It only explains them and runs nothing."""
    return CliRunner().invoke(application(), [*arguments, "--help"]).exit_code
