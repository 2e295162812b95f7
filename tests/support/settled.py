"""Imported last by the process that the tests' processes are forked from (`processes.py`): what it has imported by then
stays, and no child's garbage collector has to look at it, or to copy the memory in which it lies."""

import gc

gc.collect()
gc.freeze()
