"""A broker that can lose the newest records of a partition, as in a power failure."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.support.formatted_broker import formatted

from frameledger_services.embedded import java, kafka, ports
from frameledger_services.embedded.kafka import KafkaServer
from frameledger_services.embedded.running import start, stop, wait_until_ready


class Machine:
    """A broker with its own directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.server: KafkaServer = kafka.prepare(
            formatted(directory), ports.choose(0), software=java.packaged()
        )
        self._process = start(self.server.program)
        wait_until_ready(self.server.program, self._process)

    def power_cut(self, losses: Mapping[tuple[str, int], int]) -> None:
        """Simulate a power failure: the batches of these partitions that reach these offsets, and later ones, are
        lost."""
        self._process.kill()
        self._process.wait()
        for (topic, partition), offset in losses.items():
            self._truncate(self._directory / "kafka" / "data" / f"{topic}-{partition}", offset)
        self._process = start(self.server.program)
        wait_until_ready(self.server.program, self._process)

    def stop(self) -> None:
        stop(self.server.program, self._process)

    @staticmethod
    def _truncate(folder: Path, offset: int) -> None:
        (segment,) = folder.glob("*.log")
        kept = 0
        with segment.open("r+b") as file:
            while len(head := file.read(27)) == 27:
                # A batch: base offset, length of what follows, epoch, magic, checksum, attributes, last offset's delta.
                base, length, _, _, _, _, delta = struct.unpack(">qiibIhi", head)
                if length <= 0 or base + delta >= offset:
                    break
                kept += 12 + length
                file.seek(kept)
            file.truncate(kept)
        for made_of_it in (*folder.glob("*index"), *folder.glob("*.snapshot")):
            made_of_it.unlink()


@contextmanager
def machine(directory: Path) -> Iterator[Machine]:
    running = Machine(directory)
    try:
        yield running
    finally:
        running.stop()
