"""The broker's jars: a lock file in the repository, the files in the user's cache, and verification before use.

Each jar is downloaded by its exact coordinate, because a resolver with several roots may choose other versions than
those the broker was built with. A file gets its final name in the cache after its sha256 was verified, so named files
are complete even with concurrent downloads. When all jars are there, no network is needed. The class archive beside
them (`class_archive`) is used if no other user can have written it.
"""

import hashlib
import shutil
import threading
import time
import tomllib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from secrets import token_hex

from frameledger_services import package_data
from frameledger_services.embedded.program import EmbeddedError
from frameledger_services.url_masking import without_credentials

LOCK = "kafka-jars.lock.toml"
AT_ONCE = 6
PAUSES = (0.5, 1.0, 2.0)
"""Seconds before each further attempt to download a jar, if a connection failed or broke."""

ABANDONED_SECONDS = 3600.0
"""Age in seconds after which the folder of a download is the leftover of a killed process."""


@dataclass(frozen=True, slots=True)
class Jar:
    """A file that the broker runs with, and its checksum."""

    coordinate: str
    """`group:artifact:version`."""

    sha256: str

    @property
    def file_name(self) -> str:
        _, artifact, version = self.coordinate.split(":")
        return f"{artifact}-{version}.jar"


@dataclass(frozen=True, slots=True)
class Lock:
    """The content of the lock file: the broker's version and its jars, in the order of the class path."""

    kafka: str
    """The broker's version."""

    jars: tuple[Jar, ...]


def read_lock() -> Lock:
    """Returns the list of jars that this release runs the broker with."""
    content = tomllib.loads((package_data.folder("infra") / LOCK).read_text(encoding="utf-8"))
    return Lock(
        content["kafka"], tuple(Jar(entry["coordinate"], entry["sha256"]) for entry in content["jar"])
    )


def fetch(
    lock: Lock,
    cache: Path,
    *,
    repository: str | None = None,
    say: Callable[[str], None] = lambda _: None,
    pauses: Sequence[float] = PAUSES,
) -> list[Path]:
    """Returns the verified jars in the order of the lock, and downloads those that `cache` lacks.

    Blocks for a tenth of a second if all exist, otherwise for some seconds to download 45 MB. `repository` is the
    address of a Maven repository that replaces the resolver's default. `say` is called with the progress after each
    jar; an error that it raises ends the download. A download whose connection fails is tried again after each of the
    `pauses`. Raises `EmbeddedError` without a network, without disk space, or if a jar's sha256 differs from the lock.
    """
    over = threading.Event()
    download = partial(_fetch_with_retries, cache=cache, repository=repository, pauses=pauses, over=over)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        right = pool.map(lambda jar: _is_right(cache / jar.file_name, jar.sha256), lock.jars)
        missing = [jar for jar, there in zip(lock.jars, right, strict=True) if not there]
        try:
            cache.mkdir(parents=True, exist_ok=True)
            for count, jar in enumerate(pool.map(download, missing), 1):
                say(f"{count} of {len(missing)} jars, {jar.file_name}")
        except OSError as error:
            raise _not_fetched(error, cache) from error
        finally:
            # After a failure, no further download is started, and none is tried again.
            over.set()
            pool.shutdown(wait=False, cancel_futures=True)
    return [cache / jar.file_name for jar in lock.jars]


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _is_right(path: Path, sha256: str) -> bool:
    return path.is_file() and digest(path) == sha256


def _fetch_with_retries(
    jar: Jar, *, cache: Path, repository: str | None, pauses: Sequence[float], over: threading.Event
) -> Jar:
    remaining = iter(pauses)
    while not over.is_set():
        try:
            return _fetch(jar, cache=cache, repository=repository)
        except OSError as error:
            pause = next(remaining, None) if _is_of_the_network(error) else None
            if pause is None or _is_of_a_certificate(error) or over.wait(pause):
                over.set()
                raise
    raise ConnectionAbortedError(
        f"The download of {jar.file_name} was not begun, because another one failed."
    )


def _fetch(jar: Jar, *, cache: Path, repository: str | None) -> Jar:
    # Imported when needed: importing the resolver takes longer than verifying all jars.
    from jgo.maven import MavenContext

    group, artifact, version = jar.coordinate.split(":")
    # The resolver writes a file in place. With a folder for each download, no other process sees partial files.
    unfinished = cache / f"{jar.file_name}.{token_hex(4)}"
    for left in cache.glob(f"{jar.file_name}.*"):
        with suppress(FileNotFoundError):
            if left.stat().st_mtime < time.time() - ABANDONED_SECONDS:
                shutil.rmtree(left, ignore_errors=True)
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
        if (actual := digest(fetched)) != jar.sha256:
            raise EmbeddedError(
                f"{jar.coordinate} failed verification: its sha256 is {actual}, not {jar.sha256}.",
                "The Maven repository or a proxy delivered a modified file, which was not used. Try again, or set "
                "FRAMELEDGER_MAVEN_REPOSITORY to another repository.",
            )
        fetched.replace(cache / jar.file_name)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return jar


def _not_fetched(error: OSError, cache: Path) -> EmbeddedError:
    if not _is_of_the_network(error):
        return EmbeddedError(
            f"The broker's jars cannot be stored in {cache}: {error.strerror}.",
            "Free disk space, or set FRAMELEDGER_CACHE_DIR to another folder; 50 MB are needed.",
        )
    # The resolver quotes the repository's address.
    reason = without_credentials(str(error))
    if _is_of_a_certificate(error):
        return EmbeddedError(
            f"The broker's jars could not be downloaded: {reason}.",
            "If a proxy on the way has a certificate of its own, set REQUESTS_CA_BUNDLE to the file of its CA.",
        )
    return EmbeddedError(
        f"The broker's jars could not be downloaded: {reason}.",
        "The first start needs a network; FRAMELEDGER_MAVEN_REPOSITORY sets a mirror. Alternatives: an installed Kafka "
        "with FRAMELEDGER_KAFKA_HOME, or a running one with FRAMELEDGER_KAFKA_BOOTSTRAP_SERVERS.",
    )


def _is_of_the_network(error: OSError) -> bool:
    # The resolver's network errors have neither a file name nor an errno.
    return not (error.filename or error.errno)


def _is_of_a_certificate(error: OSError) -> bool:
    return "CERTIFICATE_VERIFY_FAILED" in str(error)
