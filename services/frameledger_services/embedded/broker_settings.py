"""The configuration of the embedded broker, with reasons."""

from pathlib import Path

from frameledger_services.embedded.ports import HOST

# To standard output, which is the log file. Below warnings, only its start and stop are logged.
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
    """Returns the configuration of a single node that listens on 127.0.0.1 and stores its log in `data`.

    `data` is relative to the broker's working directory, or contains no comma.
    """
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        # A list, which is split at commas.
        "log.dirs": str(data),
        "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": f"{HOST}:{controller_port}",
        # With the defaults, a killed broker can restart only after 12 s, when its old session has expired.
        "broker.session.timeout.ms": "1000",
        "broker.heartbeat.interval.ms": "200",
        # Topics are created by `frameledger topics` with the configuration that they need.
        "auto.create.topics.enable": "false",
        "num.partitions": "8",
        # There is only one node.
        "default.replication.factor": "1",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.num.partitions": "4",
        "share.coordinator.state.topic.num.partitions": "1",
        # On one machine, consumers join quickly and dead ones are detected sooner than on a network.
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "1000",
        # Flush to disk every second. By default a single broker leaves that to the kernel.
        "log.flush.interval.ms": "1000",
        "log.flush.scheduler.interval.ms": "1000",
        # Sized for one machine: the default is half of our heap.
        "log.cleaner.dedupe.buffer.size": str(8 * 1024 * 1024),
        "num.network.threads": "2",
        "num.io.threads": "4",
    }
