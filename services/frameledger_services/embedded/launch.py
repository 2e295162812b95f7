"""Runs between fork and exec of every program that we start. A separate script that imports nothing of ours.

    python -I -S launch.py [--die-with=PID] [--signal=N] [--nice=N] [--user-namespace | --as-user=NAME] -- COMMAND ...

It replaces itself by the command (exec), so the command keeps the pid.

`--die-with`: when that process, the parent, ends, the command receives the signal. Linux only; elsewhere the next
`up` or `down` stops leftovers. `--user-namespace`: for PostgreSQL, which refuses uid 0. The command runs as uid 1000 in
its own user namespace, which maps to our uid, so file owners and permissions do not change. `--as-user`: where
namespaces are forbidden. `--nice`: scheduling priority. Exit code 125 with an error message on standard error if the
command cannot be started.

It uses as little of the standard library as possible, because it delays every start.
"""

import ctypes
import os
import signal
import sys

CLONE_NEWUSER = 0x10000000
PR_SET_PDEATHSIG = 1
USER_INSIDE = 1000
COULD_NOT_START = 125


def main(arguments: list[str]) -> None:
    split = arguments.index("--")
    options = dict(argument.partition("=")[::2] for argument in arguments[:split])
    command = arguments[split + 1 :]
    try:
        if "--user-namespace" in options:
            enter_user_namespace()
        if user := options.get("--as-user"):
            change_user(user)
        if nice := options.get("--nice"):
            os.nice(int(nice))
        # Last, because changing the user clears it.
        if parent := options.get("--die-with"):
            die_with(int(parent), int(options.get("--signal", signal.SIGTERM)))
        os.execv(command[0], command)
    except OSError as error:
        print(f"cannot start {command[0]}: {error}", file=sys.stderr)
        sys.exit(COULD_NOT_START)


def enter_user_namespace() -> None:
    user, group = os.geteuid(), os.getegid()
    # os.unshare needs Python 3.12.
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWUSER) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"no user namespace: {os.strerror(number)}")
    # The kernel allows a process to map its own group only after it gave up setgroups.
    for file, line in [
        ("setgroups", "deny"),
        ("uid_map", f"{USER_INSIDE} {user} 1"),
        ("gid_map", f"{USER_INSIDE} {group} 1"),
    ]:
        with open(f"/proc/self/{file}", "w", encoding="ascii") as mapping:
            mapping.write(line)


def change_user(name: str) -> None:
    import pwd

    entry = pwd.getpwnam(name)
    os.initgroups(name, entry.pw_gid)
    os.setgid(entry.pw_gid)
    os.setuid(entry.pw_uid)
    os.environ["HOME"] = entry.pw_dir


def die_with(parent: int, number: int) -> None:
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        # The parent ended before the signal was set up.
        sys.exit(COULD_NOT_START)


if __name__ == "__main__":
    main(sys.argv[1:])
