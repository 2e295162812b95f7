"""A new broker's files without Java: a process formats one broker, and the others get copies.

Formatting takes one second of processor time, more than half of the start of a broker.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

from frameledger_services.embedded import java, kafka, ports
from frameledger_services.embedded.directory import make

_CLUSTER_ID = re.compile(rb"^cluster\.id=.*$", re.M)


def formatted(directory: Path) -> Path:
    """Put the files of a formatted broker, of a cluster of its own, where `kafka.prepare` looks for them. Returns the
    directory. Not for tests of what formatting does."""
    home = directory / "kafka"
    make(directory)
    for name, content in _files().items():
        file = home / name
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.write_bytes(_CLUSTER_ID.sub(b"cluster.id=" + kafka.cluster_id().encode(), content))
    return directory


@lru_cache(maxsize=1)
def _files() -> dict[Path, bytes]:
    """What formatting makes, by its place in the broker's folder."""
    with TemporaryDirectory() as folder:
        kafka.prepare(Path(folder), ports.choose(0), software=java.packaged())
        home = Path(folder).resolve() / "kafka"
        made = [home / "VERSION", *sorted((home / "data").rglob("*"))]
        return {file.relative_to(home): file.read_bytes() for file in made if file.is_file()}
