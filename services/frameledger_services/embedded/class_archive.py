"""The broker's classes, read and linked once for a machine: an archive that Java maps when it starts.

Half of the processor time that a broker takes until it answers goes into reading, verifying and linking 5,600
classes. Java keeps what came of that in a file of 60 MB, in the user's cache beside the jars, if it is told which
classes. To make it costs as much as five starts save, so who starts once does not pay for it: the first broker of a
data directory writes down which classes it uses, and has written all when it stops in order; after the next start there
the archive is made, beside everything that runs and behind it in line for the processor; and every start from then on,
in any data directory, begins with it.

Only for the Java and the jars of our packages, of which the archive has the name. One that does not fit is not used by
Java, which then reads the classes as ever.
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
"""Archives in the cache: those that were used last. A new Java, or a virtual environment of its own, needs its own."""

UNFINISHED = ".unfinished"
ABANDONED_SECONDS = 3600.0
"""It takes some seconds to make one. Whoever was killed meanwhile has left it."""

_OURS = secrets.token_hex(4)

LIST = "classes"
COMPLETE = b"\n@cp "
"""How lines begin that Java writes when it ends."""

READ_BY_JAVA = ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS")
_SHARES = re.compile(
    r"-Xshare|-XX:[+-]?(AOT|Shared(Archive|ClassList)File|DumpLoadedClassList|ArchiveClassesAtExit|RecordDynamicDumpInfo)"
)

QUIET = ("-Xlog:disable", "-Xlog:all=error:stderr")
"""It has a warning for each class that cannot be kept."""


def place(cache: Path, java: Path, jars: Sequence[Path]) -> Path:
    """Where the archive of this Java and these jars lies, whether it is there or not. Java itself looks at the same:
    the sizes and times of the files."""
    runtime = java.parent.parent
    told = [(runtime / "release").read_bytes()]
    for file in (runtime / "lib" / "modules", *jars):
        found = file.stat()
        told.append(f"{file} {found.st_size} {found.st_mtime_ns}".encode())
    return cache / f"{hashlib.sha256(b'|'.join(told)).hexdigest()[:16]}.jsa"


def is_free(environment: Mapping[str, str]) -> bool:
    """Whether the environment leaves it to us where Java has its classes from: it takes no two words about that."""
    return not any(_SHARES.search(environment.get(name, "")) for name in READ_BY_JAVA)


def is_wanted(archive: Path) -> bool:
    """Whether it is not there, and can be put there."""
    return not archive.exists() and os.access(archive.parent, os.W_OK)


def options_of_start(archive: Path) -> tuple[str, ...]:
    """Options of a Java that uses the archive, if it is there, and nobody else can have written it: Java runs what is
    in it."""
    try:
        found = archive.stat()
    except OSError:
        return ()
    if found.st_uid not in (0, os.geteuid()) or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return ()
    with suppress(OSError):
        # It was used today. Not where the cache is somebody else's, or cannot be written.
        os.utime(archive)
    return (f"-XX:SharedArchiveFile={archive}",)


def options_to_learn(home: Path) -> tuple[str, ...]:
    """Options of a Java that writes down in the broker's folder which classes it uses."""
    return (f"-XX:DumpLoadedClassList={home / LIST}",)


def is_learned(home: Path) -> bool:
    """Whether an earlier broker of this folder has written down all that it used."""
    try:
        return COMPLETE in (home / LIST).read_bytes()
    except OSError:
        return False


def maker(java: Sequence[str], home: Path, archive: Path, log: Path) -> Program:
    """The program that makes the archive: `java` is the broker's Java with its options and its class path."""
    return Program(
        name="class archive",
        argv=(
            *(java[0], "-Xshare:dump", "-XX:+AOTClassLinking", *QUIET),
            *(f"-XX:SharedClassListFile={home / LIST}", f"-XX:SharedArchiveFile={unfinished(archive)}"),
            *java[1:],
        ),
        directory=home,
        log=log,
        launch_options=("--nice=19",),
    )


async def make(program: Program, home: Path, archive: Path) -> None:
    """Run it, and put the archive in its place when it is complete. If it fails, classes are learned anew.

    Who dies before it is in its place makes it once more after the next start; who dies behind that leaves the list of
    the classes, which nobody reads any more.
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
    made = unfinished(archive)
    try:
        if await process.wait() == 0:
            # Java looks at its head only: after a power cut it must be whole, or not be there.
            await asyncio.to_thread(_to_disk, made)
            made.replace(archive)
        (home / LIST).unlink(missing_ok=True)
        _forget_the_oldest(archive.parent)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        made.unlink(missing_ok=True)


def unfinished(archive: Path) -> Path:
    """Where this process makes it: also where several machines share a cache, so a pid would be no name."""
    return archive.with_suffix(f".{_OURS}{UNFINISHED}")


def _to_disk(file: Path) -> None:
    with file.open("rb") as opened:
        os.fsync(opened.fileno())


def _forget_the_oldest(cache: Path) -> None:
    with suppress(OSError):
        for old in sorted(cache.glob("*.jsa"), key=lambda file: file.stat().st_mtime)[:-KEPT]:
            old.unlink()
