"""The files of a formatted broker, without starting Java: each process formats one broker and copies its files.

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
    """Copy the files of a formatted broker to where `kafka.prepare` looks for them, with a new cluster id. Returns the
    directory. Not for tests of the formatting itself."""
    home = directory / "kafka"
    make(directory)
    for name, content in _files().items():
        file = home / name
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.write_bytes(_CLUSTER_ID.sub(b"cluster.id=" + kafka.cluster_id().encode(), content))
    return directory


@lru_cache(maxsize=1)
def _files() -> dict[Path, bytes]:
    """Returns the files that formatting creates, by their path in the broker's folder."""
    with TemporaryDirectory() as folder:
        kafka.prepare(Path(folder), ports.choose(0), software=java.packaged())
        home = Path(folder).resolve() / "kafka"
        made = [home / "VERSION", *sorted((home / "data").rglob("*"))]
        return {file.relative_to(home): file.read_bytes() for file in made if file.is_file()}
