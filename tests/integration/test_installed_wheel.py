"""What a user installs: the wheel alone, without the checkout, in an empty folder."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from tests.bounds import PROGRAM
from tests.support.wheel import build_wheel


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel's content, as pip would lay it out. The dependencies are those of this environment."""
    folder = tmp_path_factory.mktemp("wheel")
    with zipfile.ZipFile(build_wheel(folder)) as content:
        content.extractall(folder / "site")
    return folder / "site"


def test_everything_runs_from_an_installed_wheel_in_an_empty_folder(installed, tmp_path):
    assert run(installed, tmp_path, "-c", "import frameledger_services as it; print(it.__file__)").startswith(
        str(installed)
    )
    run(installed, tmp_path, "-m", "frameledger_services", "up", "--detach")
    try:
        status = json.loads(run(installed, tmp_path, "-m", "frameledger_services", "status", "--json"))
        assert status["running"]
        assert status["data_dir"] == str(tmp_path / ".frameledger")
    finally:
        run(installed, tmp_path, "-m", "frameledger_services", "down")
    assert [path.name for path in tmp_path.iterdir()] == [".frameledger"]


def run(installed: Path, folder: Path, *words: str) -> str:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("FRAMELEDGER_")}
    done = subprocess.run(
        [sys.executable, "-P", *words],
        cwd=folder,
        # Before the checkout that this environment has installed.
        env=inherited | {"PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        timeout=PROGRAM,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
