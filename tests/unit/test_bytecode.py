"""Bytecode of the tests is kept, however they are started."""

import fcntl
import os
import subprocess
import sys

import pytest
from tests import bytecode


def test_a_run_keeps_what_is_compiled_and_so_does_what_it_starts():
    asked = "import sys; print(sys.dont_write_bytecode)"
    started = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert (sys.dont_write_bytecode, started.stdout) == (False, "False\n")


def test_where_python_is_told_not_to_keep_it_that_is_undone():
    program = "from tests import bytecode; bytecode.keep(); import os, sys; print(sys.dont_write_bytecode, *os.environ)"
    environment = {**os.environ, bytecode.VARIABLE: "1"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    kept, *variables = done.stdout.split()
    assert kept == "False"
    assert bytecode.VARIABLE not in variables


def test_the_first_process_imports_alone_and_those_that_waited_together(tmp_path):
    other = os.open(tmp_path, os.O_RDONLY)
    try:
        with bytecode.compiled_by_one(tmp_path), pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
        # The first is through, and these two had waited for it.
        fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
        with bytecode.compiled_by_one(tmp_path):
            pass
    finally:
        os.close(other)


def test_whoever_waited_long_enough_for_the_first_process_compiles_for_itself(tmp_path):
    frozen = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(frozen, fcntl.LOCK_EX)
        with bytecode.compiled_by_one(tmp_path, within=0.05):
            pass
    finally:
        os.close(frozen)
