"""The site of `make docs` builds in strict mode, and is complete."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.bounds import PROGRAM

ROOT = Path(__file__).resolve().parents[2]
LOADED = re.compile(r"<(?:script|img|link)\b[^>]*?\b(?:src|href)=\"?(https?://[^\s\">]+)")


@pytest.mark.long
def test_the_site_builds_strictly_and_loads_nothing_from_elsewhere(tmp_path):
    build = [
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--config-file",
        "infra/mkdocs.yml",
        "--site-dir",
        str(tmp_path),
    ]
    done = subprocess.run(
        [sys.executable, *build],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=PROGRAM,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "infra" / "docs" / "begin" / "index.html").is_file()
    pages = {page: page.read_text(encoding="utf-8") for page in tmp_path.rglob("*.html")}
    assert len(pages) > 20
    assert [found for page in pages.values() for found in LOADED.findall(page)] == []
