"""PostgreSQL refuses to run as root. As whom it runs instead, and where its data can lie then.

Containers and CI are root, often in a folder that nobody else may enter. In a user namespace that does not
matter: the server believes that it is somebody else, and to the file system it is still us. Where namespaces
are forbidden (most container engines), it runs as a system user, and that user must be able to reach its
binaries and its data: if it cannot, both go to a place of their own. Permissions of folders that are not ours
are never changed.
"""

import hashlib
import os
import pwd
import shutil
import stat
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from frameledger_services.embedded.program import LAUNCHER, EmbeddedError

ELSEWHERE = Path("/var/lib/frameledger")
"""Only for root without namespaces, and only if the data directory is closed to the system user."""

SYSTEM_USERS = ("postgres", "nobody")


@dataclass(frozen=True, slots=True)
class Place:
    """Where PostgreSQL's files are, and how the launcher becomes a user that can read them."""

    binaries: Path
    data: Path
    launch_options: tuple[str, ...] = ()
    owner: int | None = None
    """The system user's uid, if the files have to be its own."""

    user_name: str = ""

    def give(self, path: Path) -> None:
        """Make one file or folder of ours the server's. Nothing happens when it is run as ourselves."""
        if self.owner is not None:
            os.chown(path, self.owner, pwd.getpwuid(self.owner).pw_gid)


def find_place(installed: Path, data: Path) -> Place:
    """As whom and where PostgreSQL of the folder `installed` runs, with `data` as the wanted data folder.

    Asks the machine, so it takes some ten milliseconds as root. Where data once lies elsewhere, it is found
    there again. Raises `EmbeddedError` when there is no way.
    """
    binaries = installed / "bin"
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return Place(binaries, data)
    if can_make_user_namespace():
        return Place(binaries, data, ("--user-namespace",))
    user = _system_user()
    own = ELSEWHERE / hashlib.sha256(str(data).encode()).hexdigest()[:16]
    if not _may_enter(data.parent, user):
        data = own / data.name
    if not _may_enter(binaries, user):
        binaries = _copied(installed) / "bin"
    try:
        data.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    except OSError as error:
        raise EmbeddedError(
            f"PostgreSQL does not run as root, and {data.parent} cannot be made for the user {user.pw_name}: "
            f"{error.strerror}.",
            "Run Frameledger as an ordinary user, allow user namespaces, or set FRAMELEDGER_DATABASE_URL.",
        ) from error
    return Place(binaries, data, (f"--as-user={user.pw_name}",), user.pw_uid, user.pw_name)


@cache
def can_make_user_namespace() -> bool:
    """Whether this kernel and container let root start a process in a user namespace of its own."""
    if sys.platform != "linux":
        return False
    probe = [sys.executable, "-I", "-S", str(LAUNCHER), "--user-namespace", "--", "/bin/true"]
    return subprocess.run(probe, capture_output=True, timeout=10, check=False).returncode == 0


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
    """Whether the user can come to this folder and read in it. Folders that do not exist yet are left out."""
    for place in [folder.resolve(), *folder.resolve().parents]:
        if not place.exists():
            continue
        found = place.stat()
        if found.st_uid == user.pw_uid:
            needed = stat.S_IXUSR
        elif found.st_gid == user.pw_gid:
            needed = stat.S_IXGRP
        else:
            needed = stat.S_IXOTH
        if not found.st_mode & needed:
            return False
    return True


def _copied(installed: Path) -> Path:
    """A copy of the binaries that everybody may read, made once per version and kept."""
    digest = hashlib.sha256(str(installed).encode() + bytes(str(installed.stat().st_mtime_ns), "ascii"))
    copy = ELSEWHERE / f"{installed.name}-{digest.hexdigest()[:16]}"
    if not copy.exists():
        unfinished = copy.with_name(f"{copy.name}.{os.getpid()}")
        shutil.copytree(installed, unfinished, symlinks=True)
        unfinished.chmod(0o755)
        unfinished.rename(copy)
    return copy
