"""Builds the wheel that a user installs."""

import subprocess
import sys
from pathlib import Path

from tests.bounds import PROGRAM

ROOT = Path(__file__).resolve().parents[2]


def build_wheel(folder: Path) -> Path:
    """Build the wheel of this checkout into a folder."""
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=PROGRAM)
    (wheel,) = folder.glob("*.whl")
    return wheel
