"""The user that runs PostgreSQL, which refuses to run as root, and the location of its files for that user.

Containers and CI run as root, often in a folder that other users cannot enter. In a user namespace the server has
another uid inside, while the file system still sees ours. Where namespaces are forbidden (most container engines), it
runs as a system user, which must be able to read its binaries and its data; otherwise both are placed elsewhere.
Existing data is used by its owner, whatever the machine allows by now. Permissions of folders that are not ours are
never changed.
"""

import hashlib
import os
import pwd
import shutil
import stat
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from frameledger_services.embedded.program import LAUNCHER, EmbeddedError

ELSEWHERE = Path("/var/lib/frameledger")
"""Location for root without namespaces, if the system user cannot enter the data directory."""

SYSTEM_USERS = ("postgres", "nobody")


@dataclass(frozen=True, slots=True)
class ClusterLocation:
    """The location of PostgreSQL's files, and the launcher's options to run as a user that can read them."""

    binaries: Path
    data: Path
    launch_options: tuple[str, ...] = ()
    owner: int | None = None
    """Uid of the system user, if it must own the files."""

    user_name: str = ""

    def give(self, path: Path) -> None:
        """Make the server's user the owner of a file or folder. Does nothing if it runs as our user."""
        if self.owner is not None:
            os.chown(path, self.owner, pwd.getpwuid(self.owner).pw_gid)


def find_place(installed: Path, data: Path) -> ClusterLocation:
    """Returns user and location for the PostgreSQL in `installed`, with `data` as the preferred data folder.

    Tests what the machine allows, which takes some ten milliseconds as root. Data that was placed elsewhere is found
    again. Raises `EmbeddedError` if PostgreSQL cannot run.
    """
    binaries = installed / "bin"
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return ClusterLocation(binaries, data)
    own = ELSEWHERE / hashlib.sha256(str(data).encode()).hexdigest()[:16]
    user = _owner(data) or _owner(own / data.name)
    if user is None and can_make_user_namespace():
        return ClusterLocation(binaries, data, ("--user-namespace",))
    user = user or _system_user()
    if not _may_enter(data.parent, user):
        data = own / data.name
    try:
        if not _may_enter(binaries, user):
            binaries = _copied(installed) / "bin"
        _make_folder(data.parent)
    except OSError as error:
        raise EmbeddedError(
            f"PostgreSQL does not run as root, and its files cannot be written to {ELSEWHERE} for the user "
            f"{user.pw_name}: {error.strerror or error}.",
            "Run Frameledger as an ordinary user, allow user namespaces, or set FRAMELEDGER_DATABASE_URL.",
        ) from error
    return ClusterLocation(binaries, data, (f"--as-user={user.pw_name}",), user.pw_uid, user.pw_name)


@cache
def can_make_user_namespace() -> bool:
    """Returns whether this kernel and container allow root to start a process in a new user namespace."""
    if sys.platform != "linux":
        return False
    probe = [sys.executable, "-I", "-S", str(LAUNCHER), "--user-namespace", "--", "/bin/true"]
    # In a session of its own: Ctrl-C in the terminal would look like a refusal of the kernel.
    done = subprocess.run(probe, capture_output=True, timeout=10, check=False, start_new_session=True)
    return done.returncode == 0


def _owner(data: Path) -> pwd.struct_passwd | None:
    """Returns the owner of a data folder; None for root, for an unknown user, and if there is no folder."""
    with suppress(FileNotFoundError, NotADirectoryError, KeyError):
        return pwd.getpwuid(uid) if (uid := data.stat().st_uid) else None
    return None


def _system_user() -> pwd.struct_passwd:
    for name in SYSTEM_USERS:
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise EmbeddedError(
        f"PostgreSQL does not run as root, and there is no user {' or '.join(SYSTEM_USERS)} to run it as.",
        "Run Frameledger as an ordinary user, or set FRAMELEDGER_DATABASE_URL.",
    )


def _may_enter(folder: Path, user: pwd.struct_passwd) -> bool:
    """Returns whether the user can enter and read this folder. Folders that do not exist yet are skipped."""
    for place in [folder.resolve(), *folder.resolve().parents]:
        if not place.exists():
            continue
        status = place.stat()
        if status.st_uid == user.pw_uid:
            needed = stat.S_IXUSR
        elif status.st_gid == user.pw_gid:
            needed = stat.S_IXGRP
        else:
            needed = stat.S_IXOTH
        if not status.st_mode & needed:
            return False
    return True


def _make_folder(folder: Path) -> None:
    """Make a folder and those above it that are missing. All users can enter them, whatever the umask is."""
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    for place in reversed(missing):
        place.mkdir(exist_ok=True)
        place.chmod(0o755)


def _copied(installed: Path) -> Path:
    """Returns a copy of `installed` that all users can read and run. It is created once per version.

    The programs find their libraries relative to themselves, beside the package they are in: so both have the same
    place in the copy (wheels of manylinux keep libraries in `PACKAGE.libs`).
    """
    package = installed.parent
    digest = hashlib.sha256(str(installed).encode() + bytes(str(installed.stat().st_mtime_ns), "ascii"))
    copy = ELSEWHERE / f"{package.name}-{installed.name}-{digest.hexdigest()[:16]}"
    if not copy.exists():
        _make_folder(ELSEWHERE)
        unfinished = copy.with_name(f"{copy.name}.{os.getpid()}")
        # A killed process may have had this pid: in a container pids repeat after every start.
        shutil.rmtree(unfinished, ignore_errors=True)
        for source in (installed, package.with_name(f"{package.name}.libs")):
            if source.is_dir():
                shutil.copytree(source, unfinished / source.relative_to(package.parent), symlinks=True)
        for path in (unfinished, *unfinished.rglob("*")):
            _open_to_all(path)
        try:
            unfinished.rename(copy)
        except OSError:
            shutil.rmtree(unfinished)
            # Another process may have made it meanwhile.
            if not copy.exists():
                raise
    return copy / package.name / installed.name


def _open_to_all(path: Path) -> None:
    """Let all users do what the owner may, except write: the installation may be its owner's alone (umask 077)."""
    if not path.is_symlink():
        owners = path.stat().st_mode & (stat.S_IRUSR | stat.S_IXUSR)
        path.chmod(path.stat().st_mode | owners >> 3 | owners >> 6)
