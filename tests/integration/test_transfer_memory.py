"""What an export and an import keep in memory: a page of frames, however long a conversation is and however many there
are."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.bounds import PROGRAM
from tests.support.batches import Log, Projecting

from frameledger.frames import LLMMessagesAppendFrame, encode_frame

WORDS = "x" * 32_000
FRAMES_AT_ONCE = 250
SHORT, LONG = 300, 1_000
"""Frames. The shorter conversation already fills two pages, and so reaches the peak of all longer ones."""

GROWTH = 10 << 20
"""Bytes. The longer conversation has 22 MB more of payload alone, and several times as much as objects."""


def projected(address, frames, contexts):
    """Store `frames` frames of `contexts` conversations in turn, some hundred at a time."""

    async def run():
        async with Projecting(address) as projecting:
            log = Log()
            for number in range(frames):
                message = {"role": "user", "content": f"{number} {WORDS}"}
                log.add(f"talk-{number % contexts}", encode_frame(LLMMessagesAppendFrame(messages=[message])))
                if len(log.records) == FRAMES_AT_ONCE or number == frames - 1:
                    await projecting.store(log.records)
                    log.records.clear()

    asyncio.run(run())


STATUS = Path("/proc/self/status")

COMMAND = """
import atexit, sys
from pathlib import Path
from frameledger_services.cli import application

def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    print(next(line.split()[1] for line in lines if line.startswith("VmHWM")), file=sys.stderr)

atexit.register(peak)
application()()
"""
"""The process reads its peak itself: the `ru_maxrss` that a parent gets of a child begins with the parent's own."""


def memory_of(address, folder, *words):
    """Run a command; the most memory that its process had, in bytes."""
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, *words],
        env=os.environ | {"FRAMELEDGER_DATABASE_URL": address, "FRAMELEDGER_DATA_DIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=PROGRAM,
        check=True,
    )
    return int(done.stderr.split()[-1]) * 1024


@pytest.mark.long
@pytest.mark.skipif(not STATUS.exists(), reason="only Linux says a process's peak")
@pytest.mark.parametrize("contexts", [1, SHORT // 2], ids=["one long conversation", "many conversations"])
def test_memory_does_not_grow_with_what_is_exported_or_imported(
    make_database, migrated_template, tmp_path, contexts
):
    used = []
    for frames in (SHORT, LONG):
        origin, other = (make_database(template=migrated_template) for _ in range(2))
        projected(origin, frames, contexts * frames // SHORT if contexts > 1 else 1)
        file = tmp_path / f"{frames}.jsonl"
        exporting = memory_of(origin, tmp_path, "export", "--all", "-o", str(file))
        importing = memory_of(other, tmp_path, "import", str(file))
        assert file.stat().st_size > frames * len(WORDS)
        used.append((exporting, importing))
    (exporting, importing), (exporting_more, importing_more) = used
    assert exporting_more - exporting < GROWTH
    assert importing_more - importing < GROWTH
