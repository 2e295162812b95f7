"""Tests of the bridges on the real packages, in environments of their own (`make test-bridges`). Tests of a package
that is not installed are not collected."""

from importlib.util import find_spec

PACKAGES = {"pipecat": "pipecat", "agents_sdk": "agents"}
collect_ignore = [folder for folder, package in PACKAGES.items() if find_spec(package) is None]
