"""The JSON report of many reruns, written incrementally: `{"runs": [...], "summary": {...}}`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex
from typing import Any, TextIO

from frameledger_services.cli.terminal.whole_file import behind_links, is_device, refuse_folder
from frameledger_services.forks.summary import Summary


class Report:
    """Writes a report."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._first = True
        file.write('{"runs": [\n')

    def add(self, run: dict[str, Any]) -> None:
        self._file.write("" if self._first else ",\n")
        self._file.write(json.dumps(run, ensure_ascii=False))
        self._first = False

    def end(self, summary: Summary) -> None:
        self._file.write(f'\n], "summary": {json.dumps(summary.to_json())}}}\n')


@contextmanager
def writing(path: Path) -> Iterator[Report]:
    """Yields a report to write. Until it is complete, also after an error, its name is `PATH`, a random part and
    `.part`. Of several commands that write the same path, the last to end replaces it. A symbolic link stays: the file
    that it leads to is written. A pipe or a device is written as it is. Raises OSError."""
    refuse_folder(path)
    if is_device(path):
        with path.open("w", encoding="utf-8", errors="backslashreplace") as device:
            yield Report(device)
        return
    target = behind_links(path)
    part = target.with_name(f"{target.name}.{token_hex(4)}.part")
    with part.open("w", encoding="utf-8", errors="backslashreplace") as file:
        yield Report(file)
        file.flush()
        os.fsync(file.fileno())
    part.replace(target)


def default_path() -> Path:
    """Returns a path in the working directory with the current time in its name."""
    return Path(f"rerun-{datetime.now(UTC):%Y%m%d-%H%M%S}.json")
