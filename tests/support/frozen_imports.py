"""Imported last by the fork server of the tests' processes (`processes.py`): freezes all imported objects, so that no
child's garbage collector examines them, which would also copy their memory."""

import gc

gc.collect()
gc.freeze()
