"""Every Kafka client of ours with a broker that requires TLS and SASL: topics, client, projector."""

import asyncio
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # three that it does not list
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from tests.bounds import ON_SERVERS
from tests.support.formatted_broker import formatted
from tests.support.killable import projector
from tests.support.tiers import long

from frameledger.frames import LLMMessagesAppendFrame
from frameledger_services.client import Client
from frameledger_services.embedded import kafka as embedded_kafka
from frameledger_services.embedded import ports
from frameledger_services.event_log import broker
from frameledger_services.event_log.topics import topic_specs
from frameledger_services.settings import Settings

PASSWORD = "open sesame"
OTHER_PASSWORD = "open barley"

pytestmark = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="openssl, which makes certificates, is missing"
)


@dataclass(frozen=True, slots=True)
class Secured:
    """A broker with a listener for each security protocol, and the files of its certificates."""

    folder: Path
    tls: str
    sasl: str

    def settings(self, way: str) -> dict[str, Any]:
        ca = {"kafka_ssl_ca_path": self.folder / "ca.pem"}
        if way == "TLS":
            return ca | {
                "kafka_bootstrap_servers": self.tls,
                "kafka_security_protocol": "SSL",
                "kafka_ssl_certificate_path": self.folder / "client.pem",
                "kafka_ssl_key_path": self.folder / "client.key",
            }
        return ca | {
            "kafka_bootstrap_servers": self.sasl,
            "kafka_security_protocol": "SASL_SSL",
            "kafka_sasl_mechanism": way,
            "kafka_sasl_username": "frameledger",
            "kafka_sasl_password": PASSWORD,
        }


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    _make_certificates(folder)
    plain, controller, tls, sasl = (f"{ports.HOST}:{ports.choose(0)}" for _ in range(4))
    listeners = f"PLAINTEXT://{plain},CONTROLLER://{controller},SSL://{tls},SASL_SSL://{sasl}"
    jaas = "org.apache.kafka.common.security"
    settings = {
        "listeners": listeners,
        "advertised.listeners": listeners,
        "controller.quorum.bootstrap.servers": controller,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / "broker.both.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "ca.pem"),
        "listener.name.ssl.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": (
            f'{jaas}.plain.PlainLoginModule required user_frameledger="{PASSWORD}";'
        ),
        "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": f"{jaas}.scram.ScramLoginModule required;",
    }
    with embedded_kafka.running(formatted(folder), port=int(plain.split(":")[1]), settings=settings):
        _make_scram_user(plain)
        yield Secured(folder, tls, sasl)


@pytest.mark.parametrize("way", ["TLS", long("PLAIN"), "SCRAM-SHA-512"])
def test_what_is_published_comes_into_the_tables(secured, database, way):
    settings = Settings(
        **secured.settings(way),
        database_url=database,
        topic_prefix=f"{way.lower()}.",
        topic_partitions=2,
    )

    async def publish_and_read():
        async with asyncio.timeout(ON_SERVERS):
            async with broker.connect(settings) as brokers:
                await brokers.create_missing(topic_specs(settings))
            with projector(settings) as running:
                async with Client(settings) as client:
                    message = {"role": "user", "content": "Is anybody there?"}
                    frame = LLMMessagesAppendFrame(messages=[message], run_llm=True)
                    await client.publish("ctx", frame, wait=True, within=ON_SERVERS)
                    stored = await client.context("ctx")
                # Its effect was published over the same listener: only then does the projector end cleanly.
                assert await asyncio.to_thread(running.stop) == 0
        return stored

    stored = asyncio.run(publish_and_read())
    assert [one["content"] for one in stored.context.to_wire()["messages"]] == ["Is anybody there?"]


# aiokafka leaves the transport of a connection open that was refused after its handshake.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("way", "wrong"),
    [
        ("PLAIN", {"kafka_sasl_password": OTHER_PASSWORD}),
        ("SCRAM-SHA-512", {"kafka_sasl_password": OTHER_PASSWORD}),
        ("PLAIN", {"kafka_ssl_ca_path": None}),
        ("TLS", {"kafka_ssl_certificate_path": None, "kafka_ssl_key_path": None}),
        ("TLS", {"kafka_security_protocol": "PLAINTEXT"}),
    ],
    ids=["another password", "another password, SCRAM", "a CA we do not know", "no certificate", "no TLS"],
)
def test_who_may_not_is_told_that_no_broker_answers(secured, way, wrong):
    settings = Settings(**(secured.settings(way) | wrong))

    async def connect():
        async with asyncio.timeout(ON_SERVERS), broker.connect(settings):
            pass

    with pytest.raises(broker.BrokerError, match=settings.kafka_bootstrap_servers):
        asyncio.run(connect())


def _make_certificates(folder: Path) -> None:
    """A CA of our own, and a certificate of it for the broker and one for us."""
    _openssl(
        folder,
        *("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=A CA for a test"),
        *("-addext", "keyUsage=critical,keyCertSign", "-keyout", "ca.key", "-out", "ca.pem"),
    )
    # From 3.13 on Python asks for all that RFC 5280 does.
    extensions = (
        f"subjectAltName=IP:{ports.HOST}",
        "authorityKeyIdentifier=keyid",
        "subjectKeyIdentifier=hash",
    )
    (folder / "extensions").write_text("\n".join(extensions), encoding="ascii")
    for name in ("broker", "client"):
        _openssl(
            folder,
            *("req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}"),
            *("-keyout", f"{name}.key", "-out", f"{name}.csr"),
        )
        _openssl(
            folder,
            *("x509", "-req", "-in", f"{name}.csr", "-days", "1", "-extfile", "extensions"),
            *("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-out", f"{name}.pem"),
        )
    both = (folder / "broker.key").read_text() + (folder / "broker.pem").read_text()
    (folder / "broker.both.pem").write_text(both)


def _openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True, timeout=ON_SERVERS)


def _make_scram_user(address: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    wanted_user = UserScramCredentialUpsertion("frameledger", credential, PASSWORD.encode())
    for made in admin.alter_user_scram_credentials([wanted_user]).values():
        made.result(ON_SERVERS)
