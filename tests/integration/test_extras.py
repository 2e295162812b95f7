"""What `pip install frameledger[...]` brings: each extra in a fresh environment, and one sentence where one is missing.

The packages are those of the lock, as they are installed here; the environments are made without a network.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tests.bounds import PROGRAM
from tests.support.tiers import long
from tests.support.wheel import ROOT, build_wheel
from tests.support.wheels import packed

from frameledger_services.cli import COMMANDS
from frameledger_services.extras import MODULES

EXTRAS = tuple(MODULES)
BASE_MEGABYTES = 60
BASE = {
    *("aiokafka", "async-timeout", "cramjam", "packaging"),
    *("psycopg", "psycopg-binary", "tzdata", "orjson"),
    *("pydantic", "pydantic-core", "annotated-types", "typing-extensions", "typing-inspection"),
}
SERVICES = "claims event_log functions inference projector providers.websocket recovery store timekeeper work"

OVER_FRAMEWORKS = (
    *(f"frameledger_services.pipecat.{module}" for module in ("llm", "observer", "service_calls")),
    "frameledger_services.agents_sdk.run_hooks",
)
OVER_HTTP = "frameledger_services.client.http"
IMPORT_ALL = """
import importlib, pkgutil, sys
without = [name[1:] for name in sys.argv[1:] if name.startswith("-")]
for name in sys.argv[1 + len(without):]:
    package = importlib.import_module(name)
    for found in pkgutil.walk_packages(getattr(package, "__path__", ()), name + "."):
        if not found.name.endswith("__main__") and found.name not in without:
            importlib.import_module(found.name)
"""
CODECS = (
    "from aiokafka import codec as c; assert c.has_gzip() and c.has_lz4() and c.has_snappy() and c.has_zstd()"
)
# Runs every command in one process: in processes of their own, each would import the same for a second.
EACH_COMMAND = """
import contextlib, io, json, sys
from frameledger_services.__main__ import main
said = []
for words in json.loads(sys.argv[1]):
    out, errors, status = io.StringIO(), io.StringIO(), 0
    sys.argv = ["frameledger", *words]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        try:
            main()
        except SystemExit as end:
            status = end.code or 0
            if isinstance(status, str):
                errors.write(status)
                status = 1
    said.append((status, out.getvalue(), errors.getvalue()))
json.dump(said, sys.stdout)
"""
CREATE = """
import sys
from frameledger_services.providers import plugins
from frameledger_services.settings import Settings
print(plugins.create(sys.argv[1], Settings()).provider)
"""


class Environment:
    """A fresh environment in which the wheel is installed with some extras."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (self.packages,) = folder.glob("lib/python*/site-packages")

    def done(self, program: str, *words: str) -> subprocess.CompletedProcess[str]:
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("FRAMELEDGER_", "PYTHON", "VIRTUAL_ENV"))
        }
        return subprocess.run(
            [self.folder / "bin" / program, *words],
            cwd=self.folder,
            env=inherited,
            capture_output=True,
            text=True,
            timeout=PROGRAM,
            check=False,
        )

    def run(self, program: str, *words: str) -> str:
        done = self.done(program, *words)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def commands(self, *lines: Sequence[str]) -> list[tuple[int, str, str]]:
        """Exit code, output and errors of each of these commands."""
        return [tuple(one) for one in json.loads(self.run("python", "-c", EACH_COMMAND, json.dumps(lines)))]

    def refused(self, program: str, *words: str) -> str:
        """Returns the last line on standard error of a command that must fail."""
        done = self.done(program, *words)
        assert done.returncode == 1, done.stdout + done.stderr
        return done.stderr.rstrip().splitlines()[-1]


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """Makes the environment with the extras given, once each."""
    folder = tmp_path_factory.mktemp("extras")
    house = folder / "wheels"
    house.mkdir()
    wheel = build_wheel(house)
    for name in _needed("frameledger", {"all"}) - {"frameledger"}:
        packed(name, house)
    uv = [
        sys.executable,
        "-m",
        "uv",
        "--quiet",
        "--no-config",
        "--offline",
        "--cache-dir",
        str(folder / "cache"),
    ]
    made: dict[str, Environment] = {}

    def of(*extras: str) -> Environment:
        name = ",".join(extras)
        if name not in made:
            place = folder / f"with-{name}"
            _call(*uv, "venv", "--python", sys.executable, str(place))
            # The size of the base is measured as pip leaves it, with bytecode; the others need it only for what is
            # imported.
            compiled = () if extras else ("--compile-bytecode",)
            install = ("--no-index", "--find-links", str(house), *compiled, "--python", str(place))
            _call(*uv, "pip", "install", *install, f"frameledger[{name}] @ {wheel.as_uri()}")
            new = Environment(place)
            if extras:
                for other in made.values():
                    share_compiled(other.packages, new.packages)
            made[name] = new
        return made[name]

    return of


def share_compiled(compiled_in: Path, packages: Path) -> None:
    """Give the modules of an environment the bytecode that another one has of them. Both have the same files, linked
    from uv's cache, so Python takes it; to compile them again in each environment took half of this module's time."""
    for compiled in compiled_in.rglob("__pycache__/*.pyc"):
        place = packages / compiled.relative_to(compiled_in)
        source = place.parent.parent / f"{place.name.partition('.')[0]}.py"
        if source.exists() and not place.exists():
            place.parent.mkdir(exist_ok=True)
            os.link(compiled, place)


def test_the_base_is_the_core_and_the_client_and_nothing_else(environment):
    base = environment()
    base.run("python", "-c", IMPORT_ALL, f"-{OVER_HTTP}", "frameledger", "frameledger_services.client")
    missing = base.refused("python", "-c", "from frameledger_services.client import HttpClient")
    assert missing.endswith("aiohttp is not installed: pip install 'frameledger[http]'")
    base.run("python", "-c", "from frameledger_services.agents_sdk import FrameledgerSession")
    base.run("python", "-c", CODECS)
    settings = "from frameledger_services.settings import Settings; print(Settings.from_env().topic_prefix)"
    assert base.run("python", "-c", settings) == "llm.\n"
    installed = {canonicalize_name(path.name.split("-")[0]) for path in base.packages.glob("*.dist-info")}
    assert installed - BASE == {"frameledger"}


def test_the_base_is_small(environment):
    size = sum(file.stat().st_size for file in environment().packages.rglob("*") if file.is_file())
    print(f"{size / 1e6:.1f} MB")
    assert size < BASE_MEGABYTES * 1_000_000


def test_what_the_wheel_carries_is_there_without_any_extra(environment):
    carried = (
        "from frameledger_services.package_data import folder; print(folder('events'), folder('migrations'))"
    )
    events, migrations = (Path(word) for word in environment().run("python", "-c", carried).split())
    assert {path.name for path in events.iterdir()} == {"frames.md", "rules.md", "schemas"}
    for path in (events / "frames.md", *(events / "schemas").iterdir()):
        original = ROOT / "events" / path.relative_to(events)
        assert path.read_bytes() == original.read_bytes()
    assert (migrations / "env.py").is_file()


@pytest.mark.parametrize(
    ("extra", "names"),
    [
        long("services", [f"frameledger_services.{room}" for room in SERVICES.split()]),
        long(
            "openai", ["frameledger_services.providers.openai", "frameledger_services.providers.out_of_band"]
        ),
        long(
            "anthropic",
            ["frameledger_services.providers.anthropic", "frameledger_services.providers.out_of_band"],
        ),
        long("embedded", ["frameledger_services.embedded"]),
        long("services,gateway", ["frameledger_services.gateway"]),
        ("http", [OVER_HTTP]),
        long("all", [*(f"-{module}" for module in OVER_FRAMEWORKS), "frameledger", "frameledger_services"]),
    ],
)
def test_an_extra_brings_what_it_is_for(environment, extra, names):
    environment(*extra.split(",")).run("python", "-c", IMPORT_ALL, *names)


@pytest.mark.parametrize("extra", [long("openai"), long("anthropic")])
def test_a_provider_comes_with_its_extra_alone(environment, extra):
    assert environment(extra).run("python", "-c", CREATE, extra) == f"{extra}\n"
    other = {"openai": "anthropic", "anthropic": "openai"}[extra]
    refused = environment(extra).refused("python", "-c", CREATE, other)
    assert f"The provider '{other}' cannot be loaded: {other} is not installed: " in refused
    assert f"pip install 'frameledger[{other}]'" in refused


@pytest.mark.long
def test_the_command_line_says_of_each_command_what_it_needs(environment):
    cli = environment("cli")
    assert cli.run("frameledger", "--version").startswith("frameledger ")
    assert "Usage" in cli.run("frameledger", "--help")
    assert "barge-in at version 2" in cli.run(
        "frameledger", "fold", str(ROOT / "tests/histories/barge-in.jsonl"), "--at", "2"
    )
    shown = cli.commands(*([name, "--help"] for name in COMMANDS))
    for (name, command), (status, out, errors) in zip(COMMANDS.items(), shown, strict=True):
        if command.extras:
            install = f"pip install 'frameledger[{','.join(command.extras)}]'"
            last = errors.rstrip().splitlines()[-1]
            assert (status, last) == (1, f"This needs an extra that is not installed: {install}")
        elif name != "infer":
            assert status == 0, errors
            assert "Usage" in out
    said = cli.refused("frameledger", "infer")
    assert "pip install 'frameledger[openai]' or 'frameledger[anthropic]'" in said


def test_traces_that_are_asked_for_and_not_installed_stop_no_command(environment):
    program = (
        "import os; os.environ['OTEL_EXPORTER_OTLP_ENDPOINT'] = 'http://127.0.0.1:9';"
        "from frameledger_services.telemetry import provider;"
        "provider.recording('cli').__enter__(); print('went on')"
    )
    assert environment("cli").run("python", "-c", program) == "went on\n"


@pytest.mark.long
def test_a_machine_without_kafka_tails_and_chats_over_http(environment):
    nowhere = ("--url", "http://127.0.0.1:1")
    (tail, chat, log) = environment("cli", "http").commands(
        ("tail", "ctx-1", *nowhere), ("chat", "ctx-1", "--url", "127.0.0.1:1"), ("tail", *nowhere)
    )
    assert (tail[0], tail[1]) == (1, "")
    assert tail[2].startswith("The gateway http://127.0.0.1:1 does not answer: ")
    assert tail[2].endswith(". Check that it runs, and that this is its address.\n")
    assert chat == (
        1,
        "",
        "'127.0.0.1:1' is not the address of a gateway, such as https://frameledger.example\n",
    )
    assert log[0] == 1
    assert "The raw log cannot be read over HTTP" in log[2]


@pytest.mark.long
def test_with_its_extras_every_command_is_there(environment):
    shown = environment("all").commands(*([name, "--help"] for name in COMMANDS))
    assert [status for status, _, _ in shown] == [0] * len(COMMANDS)
    assert all("Usage" in out for _, out, _ in shown)


def test_the_command_without_its_extra_is_one_sentence(environment):
    for words in (
        ["frameledger"],
        ["frameledger", "--version"],
        ["python", "-m", "frameledger_services", "up"],
    ):
        done = environment().done(*words)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == "typer is not installed: pip install 'frameledger[cli]'\n"


@pytest.mark.parametrize(
    ("statement", "extras"),
    [
        ("import frameledger_services.functions", ["services"]),
        long("from frameledger_services.inference import InferenceService", ["services"]),
        ("from frameledger_services.pipecat import FrameledgerObserver", ["pipecat"]),
        long("from frameledger_services.agents_sdk import FrameledgerRunHooks", ["agents"]),
        (
            "from frameledger_services.providers.openai import OpenAILLMService",
            ["openai", "anthropic", "services"],
        ),
    ],
)
def test_an_import_that_needs_an_extra_says_which(environment, statement, extras):
    last = environment().refused("python", "-c", statement)
    install = " or ".join(f"'frameledger[{extra}]'" for extra in extras)
    assert re.fullmatch(
        r"frameledger_services\.extras\.MissingExtraError: \w+ is not installed: pip install .*", last
    )
    assert last.endswith(f"pip install {install}")


def _call(*words: str) -> None:
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=PROGRAM, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def _needed(name: str, extras: set[str]) -> set[str]:
    """The names of all distributions that one needs here, by what is installed."""
    found: set[tuple[str, frozenset[str]]] = set()
    open_ = [(canonicalize_name(name), frozenset(extras))]
    while open_:
        one = name, extras_of = open_.pop()
        if one in found:
            continue
        found.add(one)
        for requirement in map(Requirement, requires(name) or ()):
            marker = requirement.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in (*extras_of, "")):
                open_.append((canonicalize_name(requirement.name), frozenset(requirement.extras)))
    return {name for name, _ in found}
