"""JSON on standard output is valid in every encoding, and has no control characters for a terminal."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.tiers import long

from frameledger_services import cli

ODD = "\U0001f600 \u009b2J \u5bbd"

FOR_PEOPLE_OR_FILES = {
    "audit/diff.py",
    "audit/render_why.py",
    "demo/query_result.py",
    "rerun/report.py",
    "terminal/format_frame.py",
    "terminal/format_message.py",
    "transfer/export_work.py",
}
"""Modules that write JSON into lines for people, which are made safe, or into files."""


@pytest.mark.regression("journey 55")
@pytest.mark.parametrize("encoding", ["latin-1", long("utf-8")])
@pytest.mark.parametrize("words", [("config",), ("infer", "Hello", "--provider", "scripted")], ids=" ".join)
def test_what_is_printed_is_json_in_every_encoding(words, encoding, tmp_path):
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"replies": [{"say": [{"text": ODD}]}]}))
    environment = {
        "PYTHONIOENCODING": encoding,
        "FRAMELEDGER_INFERENCE_SCRIPT": str(script),
        "FRAMELEDGER_INFERENCE_MODEL": ODD,
    }
    ran = subprocess.run(
        [sys.executable, "-m", "frameledger_services", *words, "--json"],
        check=True,
        capture_output=True,
        env=os.environ | environment,
    )
    assert ran.stdout.isascii()
    printed = json.loads(ran.stdout)
    found = printed["FRAMELEDGER_INFERENCE_MODEL"]["value"] if words[0] == "config" else printed["text"]
    assert found == ODD


@pytest.mark.regression("journey 55")
def test_no_command_prints_json_that_is_not_ascii():
    room = Path(cli.__file__).parent
    found = {str(path.relative_to(room)) for path in room.rglob("*.py") if "ensure_ascii" in path.read_text()}
    assert found == FOR_PEOPLE_OR_FILES
