"""The configuration of the embedded broker, with reasons."""

from pathlib import Path

from frameledger_services.embedded.ports import HOST

# To standard output, which is the log file. Below a warning it says only that it started and stopped.
LOG4J = """\
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{yyyy-MM-dd'T'HH:mm:ss.SSS} %p %c{1} %m%n
logger.life.name = kafka.server.KafkaRaftServer
logger.life.level = info
"""


def broker_settings(data: Path, port: int, *, controller_port: int) -> dict[str, str]:
    """All settings of a single node that listens on 127.0.0.1 only and keeps its log in `data`."""
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "log.dirs": str(data),
        "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": f"{HOST}:{controller_port}",
        # With the defaults a broker that was killed may come back only after 12 s, its old session's time.
        "broker.session.timeout.ms": "1000",
        "broker.heartbeat.interval.ms": "200",
        # Topics are made by `frameledger topics`, with the settings that they need.
        "auto.create.topics.enable": "false",
        "num.partitions": "8",
        # One node: there is none to replicate to.
        "default.replication.factor": "1",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.num.partitions": "4",
        "share.coordinator.state.topic.num.partitions": "1",
        # A lone consumer need not wait for others; one that died need not be waited for as long as on a network.
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "1000",
        # On disk after a second. By default a lone broker leaves that to the kernel, which takes its time.
        "log.flush.interval.ms": "1000",
        "log.flush.scheduler.interval.ms": "1000",
        # Sized for one machine: the default of this one is half of our heap.
        "log.cleaner.dedupe.buffer.size": str(8 * 1024 * 1024),
        "num.network.threads": "2",
        "num.io.threads": "4",
    }
