"""Asks mypy about a few files, with what the project's own check would say of them and in a second.

Pydantic is taken as unknown, which none of these questions depend on and which saves reading it.
"""

import subprocess
import sys
from pathlib import Path

from tests.bounds import PROGRAM

ROOT = Path(__file__).resolve().parents[2]

CONFIG = f"""
[mypy]
strict = true
python_version = 3.11
mypy_path = {ROOT / "events"}
[mypy-frameledger.*]
follow_imports = silent
[mypy-pydantic.*,pydantic_core.*]
follow_imports = skip
"""


def errors_in(folder: Path) -> dict[str, list[str]]:
    """For every Python file of the folder the errors that mypy finds in it, as `line: text  [code]`."""
    (folder / "mypy.ini").write_text(CONFIG, encoding="utf-8")
    files = sorted(path.name for path in folder.glob("*.py"))
    run = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--config-file=mypy.ini",
            "--no-error-summary",
            "--cache-dir=cache",
            *files,
        ],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PROGRAM,
        check=False,
    )
    assert run.returncode in (0, 1), run.stderr or run.stdout
    errors: dict[str, list[str]] = {name: [] for name in files}
    for line in run.stdout.splitlines():
        name, number, text = line.split(":", 2)
        if text.startswith(" error: "):
            errors[name].append(f"{number}: {text.removeprefix(' error: ')}")
    return errors
