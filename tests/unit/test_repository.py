"""Rules for the files of this repository: forbidden content, and the files that a visitor expects."""

import os
import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from typer.testing import CliRunner

from frameledger_services.cli import application

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ["events", "services", "migrations", "tests", "infra"]

# Each pattern is written so that it does not match itself.
REGISTRY = re.compile(
    r"\b(?:pypi|pythonhosted|npmjs|crates|maven|golang|debian|docker|quay|ghcr|confluent)\.(?:org|io|com)\b"
)
MACHINE_PATH = re.compile(r"(?<![\w.})])/(?:work|root|home|tmp|Users|opt)/\w")
UNFINISHED = re.compile(r"\b(?:T[O]DO|F[I]XME|X[X]X)\b")
SLEEP = re.compile(r"\bsleep\(")


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (REGISTRY, "see py|pi.org"),
        (REGISTRY, "https://files.python|hosted.org/a.whl"),
        (MACHINE_PATH, "open('/tm|p/a')"),
        (MACHINE_PATH, "cd /wo|rk/main"),
        (UNFINISHED, "# TO|DO: later"),
        (SLEEP, "await asyncio.sle|ep(1)"),
    ],
)
def test_each_pattern_finds_what_it_is_for(pattern, text):
    assert pattern.search(text.replace("|", ""))


def test_no_file_names_a_package_registry():
    assert found(REGISTRY, texts()) == []


def test_no_file_names_a_path_of_one_machine():
    assert found(MACHINE_PATH, texts()) == []


def test_nothing_is_left_to_be_done():
    assert found(UNFINISHED, texts()) == []


def test_no_test_sleeps():
    assert found(SLEEP, {name: text for name, text in texts().items() if name.startswith("tests/")}) == []


def test_ci_runs_make_test_and_nothing_else():
    lines = texts()[".ci/run"].splitlines()
    assert lines == ["#!/usr/bin/env bash", "set -eu", 'cd "$(dirname "$0")/.."', "exec make test"]


def test_every_locked_package_is_pinned_with_hashes_and_no_address():
    blocks = lock_entries()
    assert len(blocks) > 20
    assert [block for block in blocks if not re.match(r"[a-z0-9-]+==\S+ ", block)] == []
    assert [block for block in blocks if not re.search(r"--hash=sha256:[0-9a-f]{64}", block)] == []
    assert (
        found(re.compile(r"://|--(?:extra-)?index|--find-links"), {"lock": texts()["requirements.lock"]})
        == []
    )


def test_every_dependency_that_the_project_names_is_locked():
    settings = tomllib.loads(texts()["pyproject.toml"])
    wanted = [
        *settings["build-system"]["requires"],
        *settings["project"]["dependencies"],
        *settings["dependency-groups"]["dev"],
    ]
    locked = {block.partition("==")[0] for block in lock_entries()}
    assert {re.match(r"[a-z0-9-]+", name)[0] for name in wanted} <= locked


@pytest.mark.parametrize("room", ROOMS)
def test_every_room_has_a_door_sign(room):
    assert texts()[f"{room}/README.md"].startswith("# ")


def test_the_first_command_stands_before_line_25_of_the_readme():
    lines = texts()["README.md"].splitlines()
    assert any(line.startswith("$ ") for line in lines[:24])


# The commands of the README start servers: tests/integration/test_pages.py runs them.
@pytest.mark.parametrize("page", ["services/README.md"])
def test_what_a_page_says_a_command_prints_is_what_it_prints(page, monkeypatch):
    monkeypatch.chdir(ROOT)
    shown = list(shown_commands(texts()[page]))
    assert shown
    for command, output in shown:
        result = CliRunner().invoke(application(), shlex.split(command))
        printed = "\n".join(line.rstrip() for line in result.output.strip("\n").splitlines())
        assert (result.exit_code, printed) == (0, output), command


def test_links_between_pages_lead_somewhere():
    link = re.compile(r"\]\((?!\w+://|#)([^)#\s]+)")
    pages = {name: text for name, text in texts().items() if name.endswith(".md")}
    broken = [
        f"{name}: {target}"
        for name, text in pages.items()
        for target in link.findall(text)
        if not (ROOT / name).parent.joinpath(target).exists()
    ]
    assert broken == []


def shown_commands(page: str) -> Iterator[tuple[str, str]]:
    """Each call of `frameledger` in a console block of a page: its arguments, and what is printed below it.

    A command's output ends at the next command or with the block.
    """
    for block in re.findall(r"^```console\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        for session in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = session.partition("\n")
            program, _, arguments = command.partition(" ")
            if program.endswith("frameledger"):
                yield arguments, output.strip("\n")


def found(pattern: re.Pattern[str], files: dict[str, str]) -> list[str]:
    return [
        f"{name}:{number}: {line.strip()[:100]}"
        for name, text in files.items()
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]


def lock_entries() -> list[str]:
    """Yields one line per locked package."""
    joined = texts()["requirements.lock"].replace("\\\n", " ")
    return [line for line in joined.splitlines() if line]


@cache
def texts() -> dict[str, str]:
    """Returns every text file of the repository by its path. A file that is not UTF-8 is not text."""
    files = {}
    for name in names():
        try:
            files[name] = (ROOT / name).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
    return files


def names() -> list[str]:
    """Returns the files that git tracks or would track; without git (an unpacked archive) all except those of tools."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(listing, cwd=ROOT, capture_output=True, check=True, text=True).stdout.split(
            "\0"
        )
    except (FileNotFoundError, subprocess.CalledProcessError):
        made = {
            ".git",
            ".venv",
            ".mypy_cache",
            ".pytest_cache",
            ".ruff_cache",
            ".hypothesis",
            "__pycache__",
            "build",
        }
        listed = []
        for folder, folders, files in os.walk(ROOT):
            # Not even listed: their content changes during the tests.
            folders[:] = [name for name in folders if name not in made]
            listed += [(Path(folder) / name).relative_to(ROOT).as_posix() for name in files]
    return sorted(name for name in listed if name and (ROOT / name).is_file())
