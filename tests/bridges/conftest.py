"""Bridges are tried on the real packages, in environments of their own (`make test-bridges`); where a package is
missing its tests are not collected."""

from importlib.util import find_spec

collect_ignore = [name for name in ("pipecat",) if find_spec(name) is None]
