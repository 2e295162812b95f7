"""The user's pages, executed step by step: in an empty folder, with only the built wheel, on real servers."""

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.bounds import PROGRAM
from tests.support.pages import ROOT, Reader, blocks
from tests.support.wheel import build_wheel

BEGIN = ROOT / "infra" / "docs" / "begin.md"
HOW_TO = ROOT / "infra" / "docs" / "how-to"
AUDIT = ROOT / "infra" / "audit.md"
README = ROOT / "README.md"
INSTALL = [block for block in blocks(BEGIN) if block.heading == "1. Install"]


@pytest.fixture(scope="module")
def installable(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which `pip install frameledger` takes the built wheel, and its dependencies from here."""
    folder = tmp_path_factory.mktemp("installable")
    build_wheel(folder)
    programs, packages = folder / "bin", folder / "packages"
    programs.mkdir()
    packages.mkdir()
    python = programs / "python3"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    ours = ("frameledger", "pip", "__pycache__", "_frameledger")
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not entry.name.startswith(ours) and entry.suffix != ".pth":
            (packages / entry.name).symlink_to(entry)
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith(("FRAMELEDGER_", "VIRTUAL"))
    }
    return inherited | {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": str(packages),
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(folder),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }


@pytest.fixture(scope="module")
def installed(installable: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the first step of the tutorial leaves in an empty folder."""
    folder = tmp_path_factory.mktemp("installed")
    Reader(folder, installable).follow(INSTALL)
    (environment,) = folder.iterdir()
    return environment


@pytest.fixture
def reader(installable: dict[str, str], installed: Path, tmp_path: Path) -> Iterator[Reader]:
    """A reader who has done that step."""
    folder = tmp_path / "reader"
    folder.mkdir()
    (folder / installed.name).symlink_to(installed)
    made = Reader(folder, installable)
    try:
        made.type(f". {installed.name}/bin/activate")
        yield made
    finally:
        made.close()
        program = folder / ".venv" / "bin" / "frameledger"
        if program.exists():
            subprocess.run([program, "down"], cwd=folder, env=installable, check=True, timeout=PROGRAM)


def follow_begin(reader: Reader) -> None:
    page = blocks(BEGIN)
    assert {block.language for block in page} == {"sh", "json", "console", "python"}
    reader.follow(block for block in page if block not in INSTALL)


def test_begin_ends_with_a_function_that_the_model_called_and_a_query_that_shows_it(reader):
    follow_begin(reader)


@pytest.mark.long
def test_the_pages_go_on_from_begin(reader):
    follow_begin(reader)
    # These pages continue where that one ends, each with its own scripts.
    for name in ("test", "resolve-a-call"):
        reader.follow(blocks(HOW_TO / f"{name}.md"))


def follow_the_readme(reader: Reader) -> None:
    shown = [block for block in blocks(README) if block.heading == "Frameledger"]
    assert [block.language for block in shown] == ["console", "python", "text", "sql", "text"]
    reader.environment["FRAMELEDGER_INFERENCE_PROVIDER"] = "scripted"
    reader.environment |= {"FRAMELEDGER_GATEWAY_OPENAI": "true", "FRAMELEDGER_GATEWAY_AG_UI": "true"}
    reader.follow(shown)


def test_what_the_readme_shows_above_the_way_of_a_frame_happens(reader):
    follow_the_readme(reader)


@pytest.mark.long
def test_the_pages_go_on_from_the_readme(reader):
    follow_the_readme(reader)
    with_curl = ["http", "openai", "ag-ui", "tokens", "web"] if shutil.which("curl") else []
    for page in (
        "publish",
        "limits",
        "move",
        *with_curl,
        "rerun",
        "functions",
        "provider",
        "unpark",
        "erase",
        "prove",
    ):
        reader.follow(blocks(HOW_TO / f"{page}.md"))
    reader.environment["REPOSITORY"] = str(ROOT)
    reader.follow(blocks(AUDIT))
