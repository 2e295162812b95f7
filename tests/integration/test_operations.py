"""The commands of `infra/operations.md`, executed: permissions on one's own servers, and both ways to restore lost
tables."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import confluent_kafka
import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from pydantic import SecretStr
from tests.bounds import ON_SERVERS
from tests.support.batches import dump, same
from tests.support.formatted_broker import formatted
from tests.support.full_pipeline import Service
from tests.support.killable import projector
from tests.support.pages import ROOT, Block, Reader, blocks
from tests.support.pipeline import Pipeline, histories, own_pipeline  # noqa: F401  # a fixture

from frameledger.frames import LLMMessagesAppendFrame
from frameledger_services.client import SyncClient
from frameledger_services.embedded import kafka as embedded_kafka
from frameledger_services.embedded import ports
from frameledger_services.settings import PREFIX, Settings

PAGE = blocks(ROOT / "infra" / "operations.md")


def below(heading: str) -> list[Block]:
    """The blocks below a heading of the page."""
    found = [block for block in PAGE if block.heading == heading]
    assert found, heading
    return found


def environment_of(settings: Settings, folder: Path, **more: str) -> dict[str, str]:
    """Returns the environment of an operator's terminal, without settings of the user who runs the tests."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
    path = {"PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}
    said = {name: getattr(settings, name) for name in settings.model_fields_set} | {"data_dir": folder}
    return (
        kept
        | path
        | {
            f"{PREFIX}{name.upper()}": value.get_secret_value()
            if isinstance(value, SecretStr)
            else str(value)
            for name, value in said.items()
        }
        | more
    )


@pytest.mark.long
def test_lost_tables_come_back_from_a_dump_and_from_the_log(
    pipeline: Pipeline, make_database, postgres, tmp_path
):
    names = ["barge-in", "failed-runs", "parallel-tools", "safe-to-retry"]
    addresses = {"RESTORED": make_database(), "EMPTY": make_database()}
    terminal = environment_of(pipeline.settings, tmp_path, **addresses)
    terminal["PATH"] = os.pathsep.join([str(postgres.binaries), terminal["PATH"]])
    operator = Reader(tmp_path, terminal)
    with projector(pipeline.settings) as running:
        pipeline.publish(histories("in-the-dump", names))
        pipeline.until_idle(running)
        operator.follow(below("Back up and restore"))
        pipeline.publish(histories("after-it", names))
        pipeline.until_idle(running)
        assert running.stop() == 0
    lost = dump(pipeline.address)
    assert len(lost["contexts"]) == 2 * len(names)

    for way, name in (("From a dump", "RESTORED"), ("From the log", "EMPTY")):
        try:
            operator.follow(below(way))
            again = Pipeline(
                pipeline.settings.model_copy(update={"database_url": SecretStr(addresses[name])}), None
            )
            again.until_idle()
        finally:
            operator.close()
        operator.follow(below("Compare"))
        same(dump(addresses[name]), lost)


USERS = ("publisher", "projector", "timekeeper", "inference", "functions", "operator")
IN_POSTGRES = {
    "projector": "projector",
    "timekeeper": "worker",
    "inference": "worker",
    "functions": "worker",
    "publisher": "reports",
    "operator": "operator",
}
PASSWORD = "a word for each"
SCRIPT = {
    "replies": [
        {"when": {"result_of": "train_position"}, "say": [{"text": "It is late."}]},
        {"say": [{"call": "train_position"}]},
    ]
}
# Stands in for Kafka's command line, which no package here has: takes its options, and creates the same ACLs.
KAFKA_ACLS = """#!{python}
import sys
from argparse import ArgumentParser
from confluent_kafka import admin
options = ArgumentParser()
for name in ("--bootstrap-server", "--command-config", "--allow-principal", "--topic", "--group"):
    options.add_argument(name)
options.add_argument("--resource-pattern-type", default="literal")
options.add_argument("--operation", action="append")
options.add_argument("--add", action="store_true", required=True)
said = options.parse_args()
kind, name = ("TOPIC", said.topic) if said.topic else ("GROUP", said.group)
bindings = [
    admin.AclBinding(
        admin.ResourceType[kind], name, admin.ResourcePatternType[said.resource_pattern_type.upper()],
        said.allow_principal, "*", admin.AclOperation[operation.upper()], admin.AclPermissionType.ALLOW,
    )
    for operation in said.operation
]
client = admin.AdminClient({{"bootstrap.servers": said.bootstrap_server}})
for made in client.create_acls(bindings).values():
    made.result({seconds})
"""


@pytest.fixture
def guarded_broker(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """A broker that denies what no ACL allows. Yields its addresses for administrators and for users."""
    plain, controller, sasl = (f"{ports.HOST}:{ports.choose(0)}" for _ in range(3))
    listeners = f"PLAINTEXT://{plain},CONTROLLER://{controller},SASL_PLAINTEXT://{sasl}"
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    users = " ".join(f'user_{name}="{PASSWORD}"' for name in USERS)
    settings = {
        "listeners": listeners,
        "advertised.listeners": listeners,
        "controller.quorum.bootstrap.servers": controller,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{module} required {users};",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with embedded_kafka.running(
        formatted(tmp_path / "broker"), port=int(plain.split(":")[1]), settings=settings
    ):
        yield plain, sasl


@pytest.fixture
def login_roles(database: str) -> Iterator[None]:
    """Create the page's roles with passwords, and drop them afterwards, because they belong to the whole server."""
    try:
        with psycopg.connect(database) as connection:
            [made] = below("PostgreSQL permissions")
            connection.execute(made.text.encode())
            for name in set(IN_POSTGRES.values()):
                connection.execute(f"ALTER ROLE {name} PASSWORD '{PASSWORD}'".encode())
        yield
    finally:
        with psycopg.connect(database) as connection:
            for name in set(IN_POSTGRES.values()):
                connection.execute(f"DROP ROLE IF EXISTS {name}".encode())


def until_a_root_is_published(address: str) -> None:
    """Return once a root is on its topic."""
    reader = confluent_kafka.Consumer({"bootstrap.servers": address, "group.id": "roots"})
    try:
        reader.assign([confluent_kafka.TopicPartition("llm.roots", 0, confluent_kafka.OFFSET_BEGINNING)])
        found = reader.poll(ON_SERVERS)
        assert found is not None
        assert found.error() is None
    finally:
        reader.close()


@pytest.mark.long
def test_each_service_does_its_work_with_the_rights_that_the_page_gives_it(
    guarded_broker, login_roles, database, tmp_path
):
    administered, address = guarded_broker
    admin = tmp_path / "admin"
    admin.mkdir()
    stub = admin / "kafka-acls.sh"
    stub.write_text(KAFKA_ACLS.format(python=sys.executable, seconds=ON_SERVERS))
    stub.chmod(0o755)
    path = os.pathsep.join([str(admin), os.environ["PATH"]])
    Reader(admin, {"PATH": path, "KAFKA": administered}).follow(below("Kafka permissions"))
    script = tmp_path / "script.json"
    script.write_text(json.dumps(SCRIPT))

    def of(user: str) -> Settings:
        return Settings(
            kafka_bootstrap_servers=address,
            kafka_security_protocol="SASL_PLAINTEXT",
            kafka_sasl_mechanism="PLAIN",
            kafka_sasl_username=user,
            kafka_sasl_password=SecretStr(PASSWORD),
            database_url=SecretStr(make_conninfo(database, user=IN_POSTGRES[user], password=PASSWORD)),
            topic_partitions=2,
            timekeeper_root_every_secs=1,
        )

    def terminal(user: str) -> dict[str, str]:
        return environment_of(of(user), tmp_path)

    operator = Reader(tmp_path, terminal("operator"))
    operator.type("frameledger topics --create")
    with ExitStack() as running:
        for user, options in {
            "projector": (),
            "timekeeper": (),
            "inference": ("--provider", "scripted", "--script", str(script)),
            "functions": ("--module", "frameledger_services.demo.tools"),
        }.items():
            running.callback(Service(terminal(user), "run", user, *options).kill)
        with SyncClient(of("publisher")) as client:
            question = LLMMessagesAppendFrame(
                messages=[{"role": "user", "content": "Are we late?"}], run_llm=True
            )
            client.publish("call", question, wait=True, within=ON_SERVERS)
            for _ in client.follow("call"):
                if client.context("call").context.messages[-1].get("content") == "It is late.":
                    break
        until_a_root_is_published(administered)
        operator.type("frameledger doctor")
