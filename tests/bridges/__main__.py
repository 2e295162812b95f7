"""`make test-bridges`: tests the bridges on the newest and on the oldest supported release of each framework.

The frameworks are large and not in the lock of this repository. All of them share an environment for each of the two,
so that their tests share imports, a broker and a database. The one with the oldest releases also has the oldest SDKs of
the model providers, and runs their contracts. Each environment has its own lock in `locks/` and is created in
`build/bridges/` when the lock changes; this takes seconds if uv has cached the packages. `python -m tests.bridges lock`
updates the locks.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from tests.bounds import BENCH, PROGRAM

ROOT = Path(__file__).resolve().parents[2]
LOCKS = Path(__file__).resolve().parent / "locks"
UV = (sys.executable, "-m", "uv", "--no-config")

EXTRAS = ("services", "openai", "anthropic", "cli", "embedded", "pipecat", "agents")
FOLDERS = ("tests/bridges/pipecat", "tests/bridges/agents_sdk")
# Also run in `floor`: no other environment has SDKs of the model providers that are built on httpx.
PROVIDERS = ("tests/contracts/test_wires.py", "tests/contracts/test_no_streams.py")
ENVIRONMENTS = {
    # By name: which tests are not run. With the oldest supported releases those on servers, whose behaviour does not
    # depend on the framework.
    "newest": (),
    "floor": ("servers",),
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bridges", description=__doc__)
    parser.add_argument("what", nargs="?", choices=["test", "lock", "bench"], default="test")
    parser.add_argument(
        "--if-installable", action="store_true", help="do not fail if packages cannot be installed"
    )
    parser.add_argument("--quick", action="store_true", help="leave out the long tests")
    parser.add_argument("--only", choices=list(ENVIRONMENTS))
    given = parser.parse_args()
    failed = 0
    for name in [given.only] if given.only else ENVIRONMENTS:
        if given.what == "lock":
            lock(name)
            continue
        try:
            python = made(name)
        except (subprocess.SubprocessError, OSError) as error:
            print(
                f"The bridges are not tested on the {name} releases, because these cannot be installed: {error}",
                flush=True,
            )
            failed = failed or (0 if given.if_installable else 1)
            continue
        if given.what == "bench":
            benches = [f"{folder}/bench.py" for folder in FOLDERS]
            failed = (run(name, python, "-s", *benches) if name == "newest" else 0) or failed
        else:
            without = (*ENVIRONMENTS[name], *(["long"] if given.quick else []))
            chosen = " and ".join(f"not {mark}" for mark in without)
            tests = (*FOLDERS, *(PROVIDERS if name == "floor" else ()))
            failed = run(name, python, *tests, "-m", chosen) or failed
    return failed


def lock(name: str) -> None:
    """Write the lock of an environment with the newest versions."""
    extras = (word for extra in EXTRAS for word in ("--extra", extra))
    bounds = LOCKS / f"{name}.in"
    within = ("--constraints", str(bounds)) if bounds.exists() else ()
    options = (
        "--no-header",
        "--no-annotate",
        "--no-emit-index-url",
        "--no-emit-find-links",
        "--generate-hashes",
    )
    _call(
        *(*UV, "pip", "compile", "--quiet", "--universal", "--upgrade", *options, *extras, *within),
        *("--output-file", str(LOCKS / f"{name}.lock"), "pyproject.toml", str(LOCKS / "tests.in")),
        seconds=BENCH,
    )


def made(name: str) -> Path:
    """Returns the interpreter of an environment with the locked packages and Frameledger from this folder."""
    folder, locked = ROOT / "build" / "bridges" / name, LOCKS / f"{name}.lock"
    python, holds = folder / "bin" / "python", folder / "holds.lock"
    if holds.exists() and holds.read_bytes() == locked.read_bytes():
        _put_ours(folder)
        return python
    shutil.rmtree(folder, ignore_errors=True)
    _call(*UV, "venv", "--quiet", "--python", sys.executable, str(folder), seconds=PROGRAM)
    install = ("pip", "sync", "--quiet", "--require-hashes", "--python", str(python), str(locked))
    _call(*UV, *install, seconds=BENCH)
    _put_ours(folder)
    shutil.copyfile(locked, holds)
    return python


def _put_ours(folder: Path) -> None:
    """Make Frameledger importable from this folder, with its version in the package metadata."""
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "_frameledger.pth").write_text(f"{ROOT / 'events'}\n{ROOT / 'services'}\n")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    about = packages / f"frameledger-{project['version']}.dist-info"
    about.mkdir(exist_ok=True)
    (about / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: frameledger\nVersion: {project['version']}\n"
    )


def run(name: str, python: Path, *words: str) -> int:
    print(f"{name}:", flush=True)
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    command = (str(python), "-m", "pytest", "-q", *words)
    try:
        return subprocess.run(command, cwd=ROOT, env=environment, timeout=2 * BENCH, check=False).returncode
    except subprocess.TimeoutExpired:
        print(f"The tests of {name} timed out.")
        return 1


def _call(*words: str, seconds: float) -> None:
    subprocess.run(words, cwd=ROOT, check=True, timeout=seconds)


if __name__ == "__main__":
    sys.exit(main())
