"""The embedded Kafka: its jars, its Java, what it keeps, and how it is reached with a password."""

import asyncio
import gc
import hashlib
import itertools
import os
import shutil
import socket
import subprocess
import threading
import uuid
import warnings
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import aiokafka
import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from tests.bounds import ON_SERVERS
from tests.support.formatted_broker import formatted

from frameledger_services import access
from frameledger_services.embedded import jars, java, ports
from frameledger_services.embedded import kafka as embedded_kafka
from frameledger_services.embedded.broker_settings import broker_settings
from frameledger_services.embedded.jars import Jar, Lock
from frameledger_services.embedded.program import EmbeddedError
from frameledger_services.embedded.running import start, wait_until_ready
from frameledger_services.settings_sources import load

NOBODY_LISTENS = "http://127.0.0.1:9"


def test_a_client_finds_the_broker_and_no_topic_makes_itself(kafka):
    async def look():
        async with client(AIOKafkaAdminClient, bootstrap_servers=kafka.bootstrap_servers) as admin:
            return await admin.describe_topics(["nobody-made-it"])

    assert asyncio.run(look())[0]["error_code"] == 3


@pytest.mark.long
def test_records_are_there_after_sigkill_under_another_port(tmp_path):
    server = embedded_kafka.prepare(tmp_path, ports.choose(0), software=java.packaged())
    process = start(server.program)
    wait_until_ready(server.program, process)
    asyncio.run(make_topic(server.bootstrap_servers))
    asyncio.run(send(server.bootstrap_servers, b"kept"))
    process.kill()
    process.wait(ON_SERVERS)
    with embedded_kafka.running(tmp_path) as server:
        assert asyncio.run(read(server.bootstrap_servers)) == b"kept"
    assert list((tmp_path / "kafka" / "tmp").iterdir()) == []


@pytest.mark.long
@pytest.mark.regression("journey 70")
def test_any_path_can_be_that_of_a_broker_in_any_locale(tmp_path, monkeypatch):
    monkeypatch.setenv("LC_ALL", "C")
    folder = tmp_path / "Müller, Söhne: 'a\\n' $x ${y} %p \"日本😀\""
    with embedded_kafka.running(folder) as server:
        asyncio.run(make_topic(server.bootstrap_servers))
        asyncio.run(send(server.bootstrap_servers, b"kept"))
    assert (folder / "kafka" / "data" / "kept-0").is_dir()
    assert list(tmp_path.iterdir()) == [folder]
    logged = (folder / "logs" / "kafka.log").read_text(encoding="utf-8").splitlines()
    # On a busy machine the controller of a single broker is late for that broker's first heartbeat.
    assert [line for line in logged if "ERROR" in line and "queue overloaded" not in line] == []


@pytest.mark.regression("journey 70")
def test_a_setting_of_the_broker_is_written_as_java_reads_it(tmp_path):
    (tmp_path / "kafka" / "data").mkdir(parents=True)
    (tmp_path / "kafka" / "VERSION").write_text("4.3.1\n", encoding="ascii")
    software = java.Software(tmp_path / "java", (), "4.3.1")
    embedded_kafka.prepare(tmp_path, 1, software=software, settings={"x": "  ü\\n\n#=: 😀"})
    written = (tmp_path / "kafka" / "server.properties").read_text(encoding="ascii").splitlines()
    assert written[-1] == r"x=\u0020 \u00fc\\n\u000a#=: \ud83d\ude00"
    assert "log.dirs=data" in written


@pytest.mark.regression("journey 150")
@pytest.mark.parametrize(
    ("made_by", "runs"), [("3.9.1", "4.4.0"), ("4.4.0", "4.3.1"), ("4.10.0", "4.9.2"), ("4.4.0", "5.0.0")]
)
def test_data_of_a_newer_or_another_major_version_are_refused_with_the_way_out(made_by, runs, tmp_path):
    (tmp_path / "kafka" / "data").mkdir(parents=True)
    (tmp_path / "kafka" / "VERSION").write_text(f"{made_by}\n", encoding="ascii")
    software = java.Software(tmp_path / "java", (), runs)
    with pytest.raises(EmbeddedError) as caught:
        embedded_kafka.prepare(tmp_path, 1, software=software)
    assert f"was created by Kafka {made_by}; this Frameledger runs {runs}" in str(caught.value)
    assert f"FRAMELEDGER_KAFKA_HOME to an installed Kafka {made_by.rpartition('.')[0]}" in caught.value.remedy


@pytest.mark.parametrize(("made_by", "runs"), [("4.3.1", "4.4.0"), ("4.3.1", "4.3.0"), ("4.9.1", "4.10.0")])
def test_data_of_an_older_version_or_another_patch_are_read(made_by, runs, tmp_path):
    (tmp_path / "kafka" / "data").mkdir(parents=True)
    (tmp_path / "kafka" / "VERSION").write_text(f"{made_by}\n", encoding="ascii")
    software = java.Software(tmp_path / "java", (), runs)
    assert embedded_kafka.prepare(tmp_path, 1, software=software).version == runs


def test_a_format_that_fails_leaves_no_half_log_behind(tmp_path):
    broken = tmp_path / "java"
    broken.write_text("#!/bin/sh\necho 'this is no Java'\nexit 1\n", encoding="ascii")
    broken.chmod(0o755)
    with pytest.raises(EmbeddedError, match="this is no Java"):
        embedded_kafka.prepare(tmp_path, 1, software=java.Software(broken, (), "4.3.1"))
    assert sorted(path.name for path in (tmp_path / "kafka").iterdir()) == ["log4j2.properties", "tmp"]


def test_no_cluster_id_looks_like_an_option():
    dash = uuid.UUID(bytes=b"\xf8" + bytes(15))
    fine = uuid.UUID(bytes=bytes(16))
    assert embedded_kafka.cluster_id(iter([dash, dash, fine]).__next__) == "A" * 22


def test_another_program_on_the_port_is_not_taken_for_a_broker():
    with socket.create_server(("127.0.0.1", 0)) as other:
        assert not embedded_kafka.answers("127.0.0.1", other.getsockname()[1])
    assert not embedded_kafka.answers("127.0.0.1", ports.choose(0))


def test_every_locked_jar_has_a_hash_and_clients_and_broker_are_of_one_version():
    lock = jars.read_lock()
    assert all(len(jar.sha256) == 64 for jar in lock.jars)
    versions = {jar.coordinate.split(":")[1]: jar.coordinate.split(":")[2] for jar in lock.jars}
    assert len(versions) == len(lock.jars)
    assert {versions["kafka_2.13"], versions["kafka-clients"], versions["kafka-server"]} == {lock.kafka}


def test_what_was_fetched_once_is_never_looked_for_again(tmp_path):
    with repository(tmp_path / "remote", b"a jar") as address:
        first = jars.fetch(lock_of(b"a jar"), tmp_path / "cache", repository=address)
    assert first == jars.fetch(lock_of(b"a jar"), tmp_path / "cache", repository=NOBODY_LISTENS)
    assert first[0].read_bytes() == b"a jar"


def test_a_jar_that_was_spoiled_in_the_cache_is_fetched_again(tmp_path):
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "tool-1.0.jar").write_bytes(b"half a j")
    with repository(tmp_path / "remote", b"a jar") as address:
        (jar,) = jars.fetch(lock_of(b"a jar"), tmp_path / "cache", repository=address)
    assert jar.read_bytes() == b"a jar"


@pytest.mark.regression("fault 296")
def test_half_a_jar_of_a_killed_process_is_not_taken_by_one_that_has_its_pid_and_is_removed_later(tmp_path):
    cache = tmp_path / "cache"
    new, old = (cache / f"tool-1.0.jar.{pid}" for pid in (os.getpid(), os.getpid() + 1))
    for folder in (new, old):
        (folder / "example" / "tool" / "1.0").mkdir(parents=True)
        (folder / "example" / "tool" / "1.0" / "tool-1.0.jar").write_bytes(b"a j")
    os.utime(old, (0, 0))
    with repository(tmp_path / "remote", b"a jar") as address:
        (jar,) = jars.fetch(lock_of(b"a jar"), cache, repository=address)
    assert jar.read_bytes() == b"a jar"
    # The newer one may be that of a process that still fetches it.
    assert sorted(cache.iterdir()) == [jar, new]


def test_a_jar_that_is_not_what_the_lock_says_is_refused_and_not_kept(tmp_path):
    with (
        repository(tmp_path / "remote", b"another jar") as address,
        pytest.raises(EmbeddedError, match="failed verification"),
    ):
        jars.fetch(lock_of(b"a jar"), tmp_path / "cache", repository=address)
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.regression("journey 52")
def test_a_download_whose_connection_breaks_is_tried_again(tmp_path):
    with repository(tmp_path / "remote", b"a jar") as address, broken_twice(address) as unreliable:
        (jar,) = jars.fetch(lock_of(b"a jar"), tmp_path / "cache", repository=unreliable, pauses=(0, 0))
    assert jar.read_bytes() == b"a jar"


@pytest.mark.regression("fault 58")
def test_one_download_that_failed_for_good_ends_all(tmp_path, monkeypatch):
    attempts = []

    def fetch(jar, **_):
        attempts.append(jar)
        raise ConnectionError("nobody listens")

    monkeypatch.setattr(jars, "_fetch", fetch)
    many = jars.read_lock()
    with pytest.raises(EmbeddedError, match="could not be downloaded"):
        jars.fetch(many, tmp_path / "cache", pauses=(0.05, 0.05))
    # Only the first concurrent downloads were tried, with their retries; no other was begun.
    assert len(attempts) <= jars.AT_ONCE * 3 < len(many.jars)


@pytest.mark.parametrize(
    ("cache", "problem", "setting"),
    [
        ("cache", "could not be downloaded", "FRAMELEDGER_MAVEN_REPOSITORY"),
        ("a file", "cannot be stored", "FRAMELEDGER_CACHE_DIR"),
    ],
)
def test_without_a_network_or_a_place_the_error_says_so_and_what_to_do(tmp_path, cache, problem, setting):
    (tmp_path / "a file").write_bytes(b"")
    with pytest.raises(EmbeddedError, match=problem) as caught:
        jars.fetch(lock_of(b"a jar"), tmp_path / cache / "jars", repository=NOBODY_LISTENS, pauses=())
    assert setting in caught.value.remedy


@pytest.mark.regression("fault 81")
def test_a_repository_that_refuses_is_named_without_its_password(tmp_path, monkeypatch):
    def fetch(jar, repository, **_):
        # The resolver's words.
        raise OSError(f"401 Client Error: Unauthorized for url: {repository}/a.jar")

    monkeypatch.setattr(jars, "_fetch", fetch)
    with pytest.raises(EmbeddedError, match="Unauthorized for url: https://") as caught:
        jars.fetch(lock_of(b"a jar"), tmp_path, repository="https://me:hush@maven.example", pauses=())
    assert "maven.example/a.jar" in caught.value.problem
    assert "hush" not in caught.value.problem


def test_behind_a_proxy_with_a_certificate_of_its_own_the_error_names_the_variable_for_it(
    tmp_path, monkeypatch
):
    def fetch(jar, **_):
        raise ConnectionError(
            "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate"
        )

    monkeypatch.setattr(jars, "_fetch", fetch)
    with pytest.raises(EmbeddedError, match="self-signed") as caught:
        jars.fetch(lock_of(b"a jar"), tmp_path)
    assert "REQUESTS_CA_BUNDLE" in caught.value.remedy


def test_a_repository_without_the_jar_is_an_error_with_its_remedy(tmp_path):
    with repository(tmp_path / "remote", b"a jar") as address, warnings.catch_warnings():
        # The resolver leaves the socket of the rejected request open.
        warnings.simplefilter("ignore", ResourceWarning)
        with pytest.raises(EmbeddedError, match=r"does not have example:tool:2\.0") as caught:
            jars.fetch(lock_of(b"a jar", version="2.0"), tmp_path / "cache", repository=address)
        assert "FRAMELEDGER_MAVEN_REPOSITORY" in caught.value.remedy
        del caught
        gc.collect()


def test_without_java_the_error_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr(java, "_packaged_java", lambda: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(EmbeddedError, match="needs Java") as caught:
        java.find_java()
    assert "FRAMELEDGER_KAFKA_BOOTSTRAP_SERVERS" in caught.value.remedy


def test_a_java_that_was_named_and_is_none_is_an_error(tmp_path):
    with pytest.raises(EmbeddedError, match="There is no Java at"):
        java.find_java(tmp_path)


def test_an_installed_kafka_is_used_as_it_is(tmp_path):
    (tmp_path / "libs").mkdir()
    for name in ("kafka_2.13-4.2.0.jar", "kafka-clients-4.2.0.jar"):
        (tmp_path / "libs" / name).write_bytes(b"")
    software = java.installed(tmp_path)
    assert (software.kafka, len(software.jars)) == ("4.2.0", 2)
    with pytest.raises(EmbeddedError, match="is not a Kafka installation"):
        java.installed(tmp_path / "libs")


@pytest.mark.long
@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes its certificate with openssl")
def test_a_broker_with_tls_and_a_password_is_reached_with_the_settings(tmp_path):
    make_certificate(tmp_path)
    plain, secured, controller = (ports.choose(0) for _ in range(3))
    listeners = ",".join(
        f"{name}://127.0.0.1:{port}"
        for name, port in [("PLAINTEXT", plain), ("SASL_SSL", secured), ("CONTROLLER", controller)]
    )
    secure = broker_settings(tmp_path / "kafka" / "data", plain, controller_port=controller) | {
        "listeners": listeners,
        "advertised.listeners": listeners,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": (
            'org.apache.kafka.common.security.plain.PlainLoginModule required user_me="hush";'
        ),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(tmp_path / "broker.pem"),
    }
    environment = {
        "FRAMELEDGER_KAFKA_BOOTSTRAP_SERVERS": f"127.0.0.1:{secured}",
        "FRAMELEDGER_KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
        "FRAMELEDGER_KAFKA_SSL_CA_PATH": str(tmp_path / "certificate.pem"),
        "FRAMELEDGER_KAFKA_SASL_USERNAME": "me",
        "FRAMELEDGER_KAFKA_SASL_PASSWORD": "hush",
    }
    wrong = environment | {"FRAMELEDGER_KAFKA_SASL_PASSWORD": "wrong"}
    with embedded_kafka.running(formatted(tmp_path), port=plain, settings=secure):
        assert asyncio.run(brokers(access.kafka_options(load(environment).settings))) == [secured]
        with pytest.raises(aiokafka.errors.KafkaError):
            asyncio.run(brokers(access.kafka_options(load(wrong).settings)))


async def brokers(options):
    async with client(AIOKafkaAdminClient, **options) as admin:
        return [broker["port"] for broker in (await admin.describe_cluster())["brokers"]]


def make_certificate(folder):
    subprocess.run(
        [
            *(
                "openssl",
                "req",
                "-x509",
                "-newkey",
                "rsa:2048",
                "-nodes",
                "-days",
                "2",
                "-subj",
                "/CN=localhost",
            ),
            *("-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", str(folder / "key.pem"), "-out", str(folder / "certificate.pem")),
        ],
        check=True,
        capture_output=True,
    )
    both = (folder / "key.pem").read_text("ascii") + (folder / "certificate.pem").read_text("ascii")
    (folder / "broker.pem").write_text(both, encoding="ascii")


async def make_topic(servers):
    async with client(AIOKafkaAdminClient, bootstrap_servers=servers) as admin:
        await admin.create_topics([NewTopic("kept", 1, 1)])


async def send(servers, value):
    async with client(aiokafka.AIOKafkaProducer, bootstrap_servers=servers) as producer:
        await producer.send_and_wait("kept", value)


async def read(servers):
    options = {"bootstrap_servers": servers, "auto_offset_reset": "earliest"}
    async with (
        client(partial(aiokafka.AIOKafkaConsumer, "kept"), **options) as consumer,
        asyncio.timeout(ON_SERVERS),
    ):
        return (await consumer.getone()).value


@asynccontextmanager
async def client(kind, **options):
    """Yields a started client of aiokafka; its admin client is no context manager itself."""
    made = kind(**options)
    async with asyncio.timeout(ON_SERVERS):
        await made.start()
    try:
        yield made
    finally:
        await (made.close() if kind is AIOKafkaAdminClient else made.stop())


def lock_of(content, version="1.0"):
    return Lock("4.3.1", (Jar(f"example:tool:{version}", hashlib.sha256(content).hexdigest()),))


@contextmanager
def repository(folder, content):
    """Yields the address of a Maven repository on this machine that has `example:tool:1.0`."""
    place = folder / "example" / "tool" / "1.0"
    place.mkdir(parents=True)
    (place / "tool-1.0.jar").write_bytes(content)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=os.fspath(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(ON_SERVERS)


@contextmanager
def broken_twice(address):
    """Yields the address of a proxy that closes its first connection without an answer, and the second in the middle of
    one."""
    behind = urlsplit(address)

    def serve(count, connection):
        with connection:
            request = connection.recv(65_536)
            if count == 0:
                return
            with socket.create_connection((behind.hostname, behind.port)) as server:
                server.sendall(request)
                answer = b"".join(iter(partial(server.recv, 65_536), b""))
            connection.sendall(answer[: -1 if count == 1 else None])

    def accept():
        for count in itertools.count():
            try:
                serve(count, listener.accept()[0])
            except OSError:
                return

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(ON_SERVERS)


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        """Nothing: a test's output is for failures."""
