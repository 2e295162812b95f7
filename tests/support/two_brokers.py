"""A cluster of two real brokers. The second one can be killed or frozen."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.formatted_broker import formatted

from frameledger_services.embedded import java, kafka, ports
from frameledger_services.embedded.broker_settings import LOG4J, broker_settings
from frameledger_services.embedded.kafka import KafkaServer, answers
from frameledger_services.embedded.program import Program
from frameledger_services.embedded.running import running, start, stop, wait_until_ready


class TwoBrokers:
    """The first broker is also the controller and always runs. The address names both."""

    def __init__(self, directory: Path, first: KafkaServer) -> None:
        home = directory / "second"
        home.mkdir()
        port = ports.choose(0)
        self.second = f"{ports.HOST}:{port}"
        self.bootstrap_servers = f"{first.bootstrap_servers},{self.second}"
        self._program = _second(directory / "kafka", home, port)
        self._process: subprocess.Popen[bytes] | None = None
        self.rise()

    def begin(self) -> None:
        """Start the second broker unless it is running, without waiting for it. Call it in the main thread: the kernel
        kills a server when the thread that started it ends."""
        if self._process is None:
            self._process = start(self._program)

    def rise(self) -> None:
        """Start the second broker and wait until it answers. Call it in the main thread too."""
        self.begin()
        assert self._process is not None
        wait_until_ready(self._program, self._process)

    def kill(self) -> None:
        """Kill the second broker if it is running."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def stop(self) -> None:
        if self._process is not None:
            stop(self._program, self._process)


@contextmanager
def two_brokers(directory: Path) -> Iterator[TwoBrokers]:
    first = kafka.prepare(formatted(directory), ports.choose(0), software=java.packaged())
    with running(first.program):
        both = TwoBrokers(directory, first)
        try:
            yield both
        finally:
            both.stop()


def _second(first: Path, home: Path, port: int) -> Program:
    """Returns the program of another broker of the first one's cluster, formatted."""
    settings = broker_settings(home / "data", port, controller_port=0)
    settings |= {
        "process.roles": "broker",
        "node.id": "2",
        "listeners": f"PLAINTEXT://{ports.HOST}:{port}",
        "advertised.listeners": f"PLAINTEXT://{ports.HOST}:{port}",
    }
    name = "controller.quorum.bootstrap.servers"
    settings[name] = _property(first / "server.properties", name)
    (home / "tmp").mkdir()
    (home / "log4j2.properties").write_text(LOG4J, encoding="utf-8")
    properties = home / "server.properties"
    kafka._write_properties(properties, settings)
    cluster_id = _property(first / "data" / "meta.properties", "cluster.id")
    arguments = ("format", "--cluster-id", cluster_id, "--config", str(properties))
    command = kafka._java(home, java.packaged(), "kafka.tools.StorageTool", *arguments)
    subprocess.run(command, cwd=home, check=True, capture_output=True)
    return Program(
        name="second-kafka",
        argv=kafka._java(home, java.packaged(), "kafka.Kafka", str(properties)),
        directory=home,
        log=home / "kafka.log",
        address=f"{ports.HOST}:{port}",
        is_ready=lambda: answers(ports.HOST, port),
        sweep=lambda: kafka._sweep(home / "tmp"),
        owns_directory=True,
    )


def _property(path: Path, name: str) -> str:
    lines = path.read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)[name]
