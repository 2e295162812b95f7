"""Bridges are tried on the real packages, in environments of their own (`make test-bridges`); where a package is
missing its tests are not collected."""

from importlib.util import find_spec

PACKAGES = {"pipecat": "pipecat", "agents_sdk": "agents"}
collect_ignore = [folder for folder, package in PACKAGES.items() if find_spec(package) is None]
