"""Writes the lock file of the broker's jars: `python -m frameledger_services.embedded.lock_jars VERSION LOG4J`.

Run it by hand for a newer Kafka, and review the result before committing it. Only the broker is resolved; the log4j
binding must not influence the versions, so it is added as a jar and not as a second root.
"""

import sys
import tempfile
from pathlib import Path

from jgo.maven import Artifact, MavenContext

from frameledger_services import package_data
from frameledger_services.embedded.jars import LOCK, digest

HEADER = """\
# The jars of the embedded broker: what it is started with, in this order, and nothing else.
# Written by `python -m frameledger_services.embedded.lock_jars {version} {log4j}`.

kafka = "{version}"
"""


def main(version: str, log4j: str) -> None:
    with tempfile.TemporaryDirectory() as cache:
        context = MavenContext(repo_cache=Path(cache))
        broker = context.create_dependency(f"org.apache.kafka:kafka_2.13:{version}")
        roots, others = context.resolver.resolve([broker])
        binding = context.project("org.apache.logging.log4j", "log4j-slf4j-impl").at_version(log4j).artifact()
        artifacts = [dependency.artifact for dependency in (*roots, *others)]
        entries = [_entry(artifact) for artifact in (*artifacts, binding)]
    text = "\n".join([HEADER.format(version=version, log4j=log4j), *entries])
    (package_data.folder("infra") / LOCK).write_text(text, encoding="utf-8")


def _entry(artifact: Artifact) -> str:
    coordinate = f"{artifact.groupId}:{artifact.artifactId}:{artifact.version}"
    return f'[[jar]]\ncoordinate = "{coordinate}"\nsha256 = "{digest(artifact.resolve())}"\n'


if __name__ == "__main__":
    main(*sys.argv[1:])
