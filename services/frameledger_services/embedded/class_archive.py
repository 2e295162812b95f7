"""Class data sharing for the broker: an archive of loaded and linked classes that Java maps at start.

Half of the CPU time of a broker's start goes into reading, verifying and linking 6,200 classes. Given a list of the
classes, Java stores the result in a file of 67 MB, in the user's cache beside the jars. Creating it costs as much as
five starts save, so it is not created on a first start: the first broker of a data directory writes the list of its
classes, which is complete after a clean stop. After the next start in that directory the archive is created in the
background at low priority. All later starts use it, in any data directory.

Only for the Java and the jars of our packages; the archive's name derives from them. Java ignores an archive that does
not match, and then loads the classes as usual.
"""

import asyncio
import hashlib
import os
import re
import secrets
import stat
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from frameledger_services.embedded.program import Program

KEPT = 3
"""Number of most recently used archives that are kept. Each Java and each virtual environment needs its own."""

UNFINISHED = ".unfinished"
ABANDONED_SECONDS = 3600.0
"""Age in seconds after which an unfinished archive is the leftover of a killed process: creating one takes seconds."""

_OURS = secrets.token_hex(4)

LIST = "classes"
COMPLETE = b"\n@cp "
"""Start of the lines with which Java ends a complete list."""

READ_BY_JAVA = ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS")
_SHARES = re.compile(
    r"-Xshare|-XX:[+-]?(AOT|Shared(Archive|ClassList)File|DumpLoadedClassList|ArchiveClassesAtExit|RecordDynamicDumpInfo)"
)

QUIET = ("-Xlog:disable", "-Xlog:all=error:stderr")
"""Java logs a warning for each class that cannot be archived."""


def place(cache: Path, java: Path, jars: Sequence[Path]) -> Path:
    """Returns the path of the archive of this Java and these jars, existing or not. The name derives from the sizes and
    times of the files, which Java checks too."""
    runtime = java.parent.parent
    parts = [(runtime / "release").read_bytes()]
    for file in (runtime / "lib" / "modules", *jars):
        status = file.stat()
        parts.append(f"{file} {status.st_size} {status.st_mtime_ns}".encode())
    return cache / f"{hashlib.sha256(b'|'.join(parts)).hexdigest()[:16]}.jsa"


def is_free(environment: Mapping[str, str]) -> bool:
    """Returns whether the environment leaves class data sharing to us. Java accepts only one such option."""
    return not any(_SHARES.search(environment.get(name, "")) for name in READ_BY_JAVA)


def is_wanted(archive: Path) -> bool:
    """Returns whether the archive is missing and can be created."""
    return not archive.exists() and os.access(archive.parent, os.W_OK)


def options_of_start(archive: Path) -> tuple[str, ...]:
    """Returns the options to use the archive, if it exists and no other user can have written it, because Java executes
    its content."""
    try:
        status = archive.stat()
    except OSError:
        return ()
    if status.st_uid not in (0, os.geteuid()) or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return ()
    with suppress(OSError):
        # Marks it as used. Fails if the cache is read-only or belongs to another user.
        os.utime(archive)
    return (f"-XX:SharedArchiveFile={archive}",)


def options_to_learn() -> tuple[str, ...]:
    """Returns the options to write the list of used classes into the working directory, the broker's folder. Java would
    replace a `%p` in a whole path by a pid."""
    return (f"-XX:DumpLoadedClassList={LIST}",)


def is_learned(home: Path) -> bool:
    """Returns whether an earlier broker of this folder has written a complete list."""
    try:
        return COMPLETE in (home / LIST).read_bytes()
    except OSError:
        return False


def maker(java: Sequence[str], home: Path, archive: Path, log: Path) -> Program:
    """Returns the program that creates the archive. `java` is the broker's command with its options and class path."""
    return Program(
        name="class archive",
        argv=(
            *(java[0], "-Xshare:dump", "-XX:+AOTClassLinking", *QUIET),
            *(f"-XX:SharedClassListFile={LIST}", f"-XX:SharedArchiveFile={unfinished(archive)}"),
            *java[1:],
        ),
        directory=home,
        log=log,
        launch_options=("--nice=19",),
    )


async def make(program: Program, home: Path, archive: Path) -> None:
    """Run the program, and rename the archive when it is complete. If it fails, the list of classes is written again.

    After a crash before the rename, the archive is created again after the next start. A crash after it leaves the list
    of classes, which is no longer used.
    """
    for left in archive.parent.glob(f"*{UNFINISHED}"):
        if left.stat().st_mtime < time.time() - ABANDONED_SECONDS:
            left.unlink(missing_ok=True)
    with program.log.open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            *program.command(),
            cwd=home,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    new_archive = unfinished(archive)
    try:
        if await process.wait() == 0:
            # Java checks only its header: after a power cut the file must be complete or absent.
            await asyncio.to_thread(_to_disk, new_archive)
            new_archive.replace(archive)
        (home / LIST).unlink(missing_ok=True)
        _forget_the_oldest(archive.parent)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        new_archive.unlink(missing_ok=True)


def unfinished(archive: Path) -> Path:
    """Returns a unique path for creating the archive. Several machines may share a cache, so a pid is not unique."""
    return archive.with_suffix(f".{_OURS}{UNFINISHED}")


def _to_disk(file: Path) -> None:
    with file.open("rb") as opened:
        os.fsync(opened.fileno())


def _forget_the_oldest(cache: Path) -> None:
    with suppress(OSError):
        for old in sorted(cache.glob("*.jsa"), key=lambda file: file.stat().st_mtime)[:-KEPT]:
            old.unlink()
