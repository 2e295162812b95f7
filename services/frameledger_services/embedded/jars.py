"""The broker's jars: a list in our tree, the files in the user's cache, and nothing used that was not verified.

Each jar is fetched by itself, by its exact coordinate: a resolver that is shown several roots at once may choose
other versions than the broker was built with. A file gets its name in the cache only after its sha256 was right,
so what has a name there is complete, whoever fetches at the same time. Once all are there no network is needed. What
Java made of them lies beside them (`class_archive`), and is used if nobody else can have written it.
"""

import hashlib
import os
import shutil
import tomllib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from frameledger_services import package_data
from frameledger_services.embedded.program import EmbeddedError

LOCK = "kafka-jars.lock.toml"
AT_ONCE = 6


@dataclass(frozen=True, slots=True)
class Jar:
    coordinate: str
    """`group:artifact:version`."""

    sha256: str

    @property
    def file_name(self) -> str:
        _, artifact, version = self.coordinate.split(":")
        return f"{artifact}-{version}.jar"


@dataclass(frozen=True, slots=True)
class Lock:
    kafka: str
    """The broker's version."""

    jars: tuple[Jar, ...]


def read_lock() -> Lock:
    """The list of jars that this release runs the broker with."""
    content = tomllib.loads((package_data.folder("infra") / LOCK).read_text(encoding="utf-8"))
    return Lock(
        content["kafka"], tuple(Jar(entry["coordinate"], entry["sha256"]) for entry in content["jar"])
    )


def fetch(
    lock: Lock, cache: Path, *, repository: str | None = None, say: Callable[[str], None] = lambda _: None
) -> list[Path]:
    """All jars of the lock, verified, in the lock's order; those that `cache` lacks are fetched.

    Blocks: a tenth of a second when all are there, some seconds for the 45 MB otherwise. `repository` is the
    address of a Maven repository to use instead of the resolver's own. `say` hears a few words after each jar;
    what it raises ends the fetching. Raises `EmbeddedError` without a network, without space, or when a jar is not
    what the lock says.
    """
    with ThreadPoolExecutor(AT_ONCE) as pool:
        right = pool.map(lambda jar: _is_right(cache / jar.file_name, jar.sha256), lock.jars)
        missing = [jar for jar, there in zip(lock.jars, right, strict=True) if not there]
        try:
            cache.mkdir(parents=True, exist_ok=True)
            for count, jar in enumerate(
                pool.map(partial(_fetch, cache=cache, repository=repository), missing), 1
            ):
                say(f"{count} of {len(missing)} jars, {jar.file_name}")
        except OSError as error:
            raise _not_fetched(error, cache) from error
        finally:
            # After a failure nothing more is begun.
            pool.shutdown(wait=False, cancel_futures=True)
    return [cache / jar.file_name for jar in lock.jars]


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _is_right(path: Path, sha256: str) -> bool:
    return path.is_file() and digest(path) == sha256


def _fetch(jar: Jar, *, cache: Path, repository: str | None) -> Jar:
    # Imported when it is needed: the resolver takes longer to import than all jars take to be verified.
    from jgo.maven import MavenContext

    group, artifact, version = jar.coordinate.split(":")
    # The resolver writes a file in place. A folder for each fetch keeps halves away from everybody else.
    unfinished = cache / f"{jar.file_name}.{os.getpid()}"
    try:
        context = MavenContext(
            repo_cache=unfinished, remote_repos={"given": repository} if repository else None, timeout=30
        )
        try:
            fetched = context.project(group, artifact).at_version(version).artifact().resolve()
        except RuntimeError as error:
            raise EmbeddedError(
                f"The Maven repository does not have {jar.coordinate}.",
                "Set FRAMELEDGER_MAVEN_REPOSITORY to one that mirrors Maven Central.",
            ) from error
        if (found := digest(fetched)) != jar.sha256:
            raise EmbeddedError(
                f"{jar.coordinate} is not what it should be: its sha256 is {found}, not {jar.sha256}.",
                "Somebody between here and the Maven repository changes files. Nothing of it was used.",
            )
        fetched.replace(cache / jar.file_name)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return jar


def _not_fetched(error: OSError, cache: Path) -> EmbeddedError:
    # The resolver's network errors are OSErrors without a number of the file system's.
    if error.filename or error.errno:
        return EmbeddedError(
            f"The broker's jars cannot be kept in {cache}: {error.strerror}.",
            "Make room or set FRAMELEDGER_CACHE_DIR to another folder; 50 MB are needed.",
        )
    return EmbeddedError(
        f"The broker's jars could not be fetched: {error}.",
        "The first start needs a network (FRAMELEDGER_MAVEN_REPOSITORY names a mirror), later ones do not. "
        "FRAMELEDGER_KAFKA_HOME uses an installed Kafka, FRAMELEDGER_KAFKA_BOOTSTRAP_SERVERS a running one.",
    )
