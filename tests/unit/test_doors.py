"""The import rules of the rooms: what each may import, and which impure functions the pure core may not call.

`frameledger` is the pure core. A conversation folds to the same context years later and in another process only if
nothing in it depends on the time, the machine or the process. The rule is a list of allowed imports, not of forbidden
ones: whoever needs a new module adds it here and thereby declares it pure.

The rooms of `frameledger_services` have lists of the same kind. Services communicate only through the log and the
outbox, so that each can be stopped, replaced and scaled alone.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

EVENTS = Path(__file__).resolve().parents[2] / "events"
SERVICES = EVENTS.parent / "services"

# Standard library modules whose functions depend on their arguments only, except the calls in IMPURE.
PURE_STDLIB = {
    "__future__",
    "abc",
    "ast",
    "base64",
    "binascii",
    "bisect",
    "codecs",
    "collections",
    "contextlib",
    "copy",
    "dataclasses",
    "datetime",
    "decimal",
    "difflib",
    "enum",
    "functools",
    "hashlib",
    "heapq",
    "inspect",
    "itertools",
    "json",
    "keyword",
    "math",
    "numbers",
    "operator",
    "re",
    "string",
    "struct",
    "textwrap",
    "types",
    "typing",
    "unicodedata",
    "uuid",
    "weakref",  # finds the other half of a conversation in memory; no rule of the fold depends on it
    "warnings",  # tells the caller of a deprecated name; no result depends on it
    "zlib",
}
# pydantic and the two packages that it consists of. Nothing else: the core must install next to any other package.
THIRD_PARTY = {"pydantic", "pydantic_core", "annotated_types", "typing_extensions"}

# Calls that depend on the clock, on random numbers or on the outside. `hash` of a string and `id` of anything differ
# between two processes (only `__hash__` may return a hash); uuid5 depends only on its arguments.
IMPURE = {
    "now": "reads the clock",
    "utcnow": "reads the clock",
    "today": "reads the clock",
    "uuid1": "reads the clock and the machine's address",
    "uuid4": "is random",
    "getnode": "reads the machine's address",
    "hash": "differs between processes",
    "id": "differs between processes",
    "open": "reads or writes a file",
    "print": "writes to the terminal",
    "input": "reads from the terminal",
    "exec": "runs text",
    "eval": "runs text",
    "__import__": "imports what no reader sees",
    "breakpoint": "stops the process",
}
# These are forbidden by name, wherever they are imported from and whatever they are called on.
ANYWHERE = {"now", "utcnow", "today", "uuid1", "uuid4", "getnode"}

# The two programs at the edge of the pure core: they read and write files and standard streams. No pure module imports
# them.
EDGE = {"frameledger.conformance", "frameledger.generate"}
EDGE_STDLIB = {"argparse", "io", "os", "pathlib", "sys"}
EDGE_CALLS = {"open", "print"}

# The rooms of the services, each with the rooms that it may import. The modules outside the rooms (settings, access and
# so on) may be imported by all, and import no room except those in `BESIDE`.
ROOMS = {
    # All may record metrics and spans.
    "telemetry": set(),
    "event_log": set(),
    "store": set(),
    "embedded": set(),
    "projector": {"event_log", "store", "telemetry"},
    "recovery": {"event_log", "projector", "store"},
    "audit": {"event_log", "projector", "recovery", "store"},
    "forks": {"client", "event_log", "providers", "store"},
    "transfer": {"event_log", "projector", "providers", "store"},
    "claims": {"store", "telemetry"},
    "work": {"claims", "event_log", "store", "telemetry"},
    "providers": set(),
    "inference": {"claims", "event_log", "providers", "store", "work", "telemetry"},
    "functions": {"claims", "event_log", "providers", "store", "work", "telemetry"},
    # Of audit only the computation of a root, which imports no projector.
    "timekeeper": {"audit", "claims", "event_log", "store", "telemetry"},
    "client": {"event_log", "providers", "store", "telemetry"},
    # A process of its own, which publishes and reads by a client, like an application.
    # Of inference only the module that makes a recorded request again.
    "gateway": {
        "audit",
        "claims",
        "client",
        "event_log",
        "forks",
        "inference",
        "providers",
        "store",
        "telemetry",
    },
    # In an application's process, beside its pipeline.
    "agents_sdk": {"client"},
    "pipecat": {"client"},
    # Its functions are those of an application, and its proof reads the log itself.
    "demo": {"client", "embedded", "event_log", "functions"},
    "bench": {
        "audit",
        "client",
        "embedded",
        "event_log",
        "functions",
        "gateway",
        "inference",
        "projector",
        "providers",
        "store",
        "telemetry",
        "work",
    },
    "cli": {
        "audit",
        "bench",
        "claims",
        "client",
        "demo",
        "embedded",
        "event_log",
        "forks",
        "functions",
        "gateway",
        "inference",
        "projector",
        "providers",
        "recovery",
        "store",
        "telemetry",
        "timekeeper",
        "transfer",
    },
}
BESIDE = {"telemetry"}
STRANGERS = {"projector", "client", "inference", "functions", "timekeeper"}
"""Services, which may run in processes of their own: none of them imports another."""

# What imports Kafka's client: the room of the log; `access`, which has the connection settings; `transient`, which
# classifies its errors; and the baseline of the bench.
SPEAK_TO_KAFKA = ("event_log", "access", "transient", "bench.road")
# What reads the environment: the source of settings, the command line, and programs that are started as `python -m`.
READ_THE_ENVIRONMENT = (
    "settings_sources",
    "cli",
    "__main__",
    "demo.tools",  # an application's module, which `run functions` imports
    "bench.inference.deaf",
    "pipecat.setup_file",  # a program of Pipecat's loads it
    "bench.road.bare_road",
    "bench.road.straight_line",
    "bench.road.watched",
)
# These do not read settings from it: they pass it on to child processes, or follow conventions of other tools.
PASS_THE_ENVIRONMENT_ON = (
    "bench.road.servers",
    "data_directory",  # XDG_STATE_HOME
    "embedded.fork_server",
    "embedded.java",  # JAVA_HOME
    "embedded.kafka",
    "embedded.launch",
    "embedded.running",
    "embedded.supervisor",
    "telemetry.provider",  # OTEL_...
)


def test_the_pure_room_has_modules_to_look_at():
    assert len(list(modules())) > 3


def test_events_imports_nothing_but_pydantic_and_what_is_pure():
    assert [wrong for name, source in modules() for wrong in trespasses(name, source)] == []


@pytest.mark.parametrize(
    "source",
    [
        "import asyncio",
        "import time",
        "import random",
        "import os.path",
        "import sys",
        "import logging",
        "import socket",
        "from pathlib import Path",
        "from importlib import import_module",
        "import frameledger_services",
        "from frameledger_services.cli import main",
        "from frameledger import conformance",
        "from frameledger.generate import schemas",
        "from .conformance import play",
        "from . import conformance",
        "import frameledger.conformance",
        "import aiokafka",
        "def later():\n    import time",
        "from datetime import datetime\nat = datetime.now()",
        "import datetime\nday = datetime.date.today()",
        "import uuid\nname = uuid.uuid4()",
        "from uuid import uuid4",
        "from uuid import uuid1 as derived",
        "seed = hash('a')",
        "class Text:\n    def __eq__(self, other): return hash(self) == hash(other)",
        "text = open('a').read()",
        "print('a')",
        "async def fold(): ...",
    ],
)
def test_what_is_not_pure_is_turned_away(source):
    assert trespasses("frameledger.turns", source)


@pytest.mark.parametrize(
    "source",
    [
        "from uuid import UUID, uuid5",
        "from collections.abc import Mapping",
        "from pydantic import BaseModel",
        "from . import frames",
        "from .evolve.turns import user_started",
        "from frameledger import frames",
        "from datetime import datetime\nat = datetime.fromtimestamp(0)",
        "class Text:\n    def __hash__(self): return hash(self.pieces)",
    ],
)
def test_what_depends_on_its_arguments_only_is_let_in(source):
    assert trespasses("frameledger.turns", source) == []


def test_the_edge_may_read_and_write_and_do_no_more():
    assert trespasses("frameledger.generate", "import sys\nfrom pathlib import Path\nprint(open('a'))") == []
    assert trespasses("frameledger.generate", "import socket")
    assert trespasses("frameledger.generate", "import time")


def test_every_room_of_the_services_has_its_doors_here():
    packages = {path.parent.name for path in (SERVICES / "frameledger_services").glob("*/__init__.py")}
    assert packages == ROOMS.keys()


def test_services_never_import_each_other():
    assert [room for room in STRANGERS & ROOMS.keys() if ROOMS[room] & STRANGERS] == []


def test_the_rooms_of_the_services_go_through_their_doors_only():
    assert [wrong for name, source in service_modules() for wrong in intrusions(name, source)] == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("projector.batches", "from frameledger_services.client import Client"),
        ("client.client", "from frameledger_services import projector"),
        ("client.client", "from ..projector import rows"),
        ("store.heads", "import frameledger_services.event_log.topics"),
        ("event_log.broker", "from frameledger_services.store import schema"),
        ("embedded.stack", "def up():\n    from frameledger_services.client import Client"),
        ("bench.core", "from frameledger_services.cli import output"),
        ("access", "from frameledger_services.store import schema"),
        ("projector.service", "from aiokafka import TopicPartition"),
        ("client.client", "import aiokafka.errors"),
        ("projector.service", "import os\nhost = os.environ['HOST']"),
        ("settings", "import os\nhost = os.getenv('HOST')"),
        ("client.client", "from os import environ"),
    ],
)
def test_what_comes_through_a_wall_is_turned_away(module, source):
    assert intrusions(f"frameledger_services.{module}", source)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("projector.batches", "from frameledger_services.store import heads"),
        ("projector.batches", "from frameledger_services.projector.rows import Rows"),
        ("projector.service", "from frameledger_services import access"),
        ("client.client", "from frameledger.record import decode"),
        ("event_log.broker", "from aiokafka.errors import KafkaError"),
        ("cli.config", "import os\nfound = os.environ"),
    ],
)
def test_what_comes_through_a_door_is_let_in(module, source):
    assert intrusions(f"frameledger_services.{module}", source) == []


def test_who_may_pass_the_environment_on_does():
    sources = dict(service_modules())
    for module in PASS_THE_ENVIRONMENT_ON:
        assert "os.environ" in sources[f"frameledger_services.{module}"], module


def intrusions(module: str, source: str) -> list[str]:
    """Returns the violations of the import rules in a module of `frameledger_services`, a line each."""
    inside = module.partition(".")[2]
    room = inside.partition(".")[0]
    doors = {"cli"} if room == "__main__" else {room} | ROOMS.get(room, BESIDE)
    wrong: list[str] = []
    for node in ast.walk(ast.parse(source)):
        place = f"{module}:{getattr(node, 'lineno', 0)}"
        for imported in imports(module, node):
            parts = imported.split(".")
            if parts[0] == "aiokafka" and not _is_in(inside, SPEAK_TO_KAFKA):
                wrong.append(f"{place} speaks to Kafka past event_log")
            if parts[0] == "frameledger_services" and parts[1:2] and parts[1] in ROOMS.keys() - doors:
                wrong.append(f"{place} imports {imported}, and there is no door")
            if imported in {"os.environ", "os.getenv"}:
                wrong.append(f"{place} imports {imported}; write os.environ where it may be read")
        match node:
            case ast.Attribute(value=ast.Name(id="os"), attr="environ" | "environb" | "getenv"):
                if not _is_in(inside, READ_THE_ENVIRONMENT + PASS_THE_ENVIRONMENT_ON):
                    wrong.append(f"{place} reads the environment")
    return wrong


def _is_in(module: str, places: tuple[str, ...]) -> bool:
    return any(f"{module}.".startswith(f"{place}.") for place in places)


def service_modules() -> Iterator[tuple[str, str]]:
    """Yields the name and the source of every module of `frameledger_services`."""
    for path in sorted((SERVICES / "frameledger_services").rglob("*.py")):
        name = ".".join(path.relative_to(SERVICES).with_suffix("").parts).removesuffix(".__init__")
        yield name, path.read_text(encoding="utf-8")


def trespasses(module: str, source: str) -> list[str]:
    """Returns the violations of purity in a module of `frameledger`, a line each."""
    edge = module in EDGE
    allowed = PURE_STDLIB | THIRD_PARTY | (EDGE_STDLIB if edge else set())
    tree = ast.parse(source)
    passed_on = {
        call
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name == "__hash__"
        for call in ast.walk(node)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "hash"
    }
    wrong: list[str] = []
    for node in ast.walk(tree):
        place = f"{module}:{getattr(node, 'lineno', 0)}"
        for imported in imports(module, node):
            top, last = imported.partition(".")[0], imported.rpartition(".")[2]
            if top == "frameledger":
                if not edge and any(f"{imported}.".startswith(f"{name}.") for name in EDGE):
                    wrong.append(f"{place} imports {imported}, which does IO")
            elif top not in allowed:
                wrong.append(f"{place} imports {imported}, which is not known to be pure")
            elif last in ANYWHERE:
                wrong.append(f"{place} imports {imported}, which {IMPURE[last]}")
        match node:
            case ast.AsyncFunctionDef(name=name):
                wrong.append(f"{place} {name} is async, and the pure core never waits")
            case ast.Call(func=ast.Name(id=called)) if called in IMPURE:
                if node not in passed_on and not (edge and called in EDGE_CALLS):
                    wrong.append(f"{place} {called}() {IMPURE[called]}")
            case ast.Attribute(attr=called) if called in ANYWHERE:
                wrong.append(f"{place} {called}() {IMPURE[called]}")
    return wrong


def imports(module: str, node: ast.AST) -> Iterator[str]:
    """Yields the full name of everything that a statement imports."""
    match node:
        case ast.Import(names=names):
            yield from (alias.name for alias in names)
        case ast.ImportFrom(module=source, names=names, level=level):
            package = ".".join(module.split(".")[:-level]) if level else ""
            prefix = ".".join(part for part in (package, source) if part)
            yield from (f"{prefix}.{alias.name}" for alias in names)


def modules() -> Iterator[tuple[str, str]]:
    """Yields the name and the source of every module of `frameledger`."""
    for path in sorted((EVENTS / "frameledger").rglob("*.py")):
        name = ".".join(path.relative_to(EVENTS).with_suffix("").parts)
        yield name, path.read_text(encoding="utf-8")
