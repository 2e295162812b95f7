"""What a user installs: the wheel without the checkout, in an empty folder."""

import json
import os
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_string
from email.policy import compat32
from pathlib import Path

import pytest
from tests.bounds import PROGRAM
from tests.support.wheel import ROOT, build_wheel
from trove_classifiers import classifiers

from frameledger_services.extras import MODULES


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel's content, as pip would lay it out. The dependencies are those of this environment."""
    folder = tmp_path_factory.mktemp("wheel")
    with zipfile.ZipFile(build_wheel(folder)) as content:
        content.extractall(folder / "site")
    return folder / "site"


@pytest.mark.long
def test_the_source_distribution_builds_the_same_wheel(tmp_path):
    build = [sys.executable, "-m", "hatchling", "build", "--directory"]
    subprocess.run([*build, str(tmp_path)], cwd=ROOT, check=True, capture_output=True, timeout=PROGRAM)
    (sdist,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(sdist) as content:
        content.extractall(tmp_path, filter="data")
    (source,) = (path for path in tmp_path.iterdir() if path.is_dir())
    again = [*build, str(tmp_path / "again"), "--target", "wheel"]
    subprocess.run(again, cwd=source, check=True, capture_output=True, timeout=PROGRAM)
    (wheel,), (from_source,) = tmp_path.glob("*.whl"), (tmp_path / "again").glob("*.whl")
    assert from_source.read_bytes() == wheel.read_bytes()


def test_the_metadata_is_what_an_index_shows(installed):
    (about,) = installed.glob("*.dist-info")
    metadata = message_from_string((about / "METADATA").read_text(encoding="utf-8"), policy=compat32)
    assert metadata["Description-Content-Type"].partition(";")[0] == "text/markdown"
    assert metadata.get_payload() == (ROOT / "README.md").read_text(encoding="utf-8")
    assert metadata["License-Expression"] == "Apache-2.0"
    assert [path.name for path in (about / "licenses").iterdir()] == metadata.get_all("License-File")
    told = metadata.get_all("Classifier")
    assert set(told) <= classifiers
    # A package index refuses them beside a license expression.
    assert not [classifier for classifier in told if classifier.startswith("License ::")]
    assert metadata.get_all("Provides-Extra") == sorted([*MODULES, "all"])
    assert "\n" not in metadata["Summary"]


@pytest.mark.long
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
        # Found before the checkout that is installed in this environment.
        env=inherited | {"PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        timeout=PROGRAM,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
