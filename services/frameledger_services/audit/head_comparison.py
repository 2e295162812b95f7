"""Compares the row of `contexts` of one conversation, and its stored state, with the folded head."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import Any

from frameledger import stored
from frameledger.evolve.state import State
from frameledger_services.audit.differences import Differences
from frameledger_services.projector.head import Head
from frameledger_services.projector.head_rows import state_columns
from frameledger_services.store import heads

NOT_COMPARED = frozenset({"version", "started_at", "last_at", "duplicate_count", "chain"})
"""Attributes of a head that cannot be derived from its frames (a duplicate stores none), or that the check of the chain
compares."""


def compare_head(
    differences: Differences, row: Mapping[str, Any], head: Head, states: Mapping[int, State]
) -> None:
    """Compare a row of `contexts` (`stored_rows.heads`) with the head that was folded up to its version, or up to the
    parked frame, and its stored state with that of its version, if `states` has it.

    Version, chain and times are not compared, because they include parked frames.
    """
    version = int(row["version"])
    expected = {
        name: attrgetter(path)(head) for name, path in heads.ATTRIBUTES.items() if name not in NOT_COMPARED
    } | state_columns(head.state)
    expected["origin"] = None if head.origin is None else head.origin.decode()
    expected["experiment"] = bool(head.experiment)
    for name, value in expected.items():
        if row[name] != value:
            differences.add(version, "contexts", name, row[name], value)
    at = int(row["state_version"])
    if (state := states.get(at)) is not None:
        _compare_state(differences, row, state, at)
    elif not 1 <= at <= head.version:
        differences.add(version, "contexts", "state_version", at, f"1 to {head.version}")


def check_fold_version(differences: Differences, row: Mapping[str, Any]) -> None:
    """Check that a row of `contexts` and its state name the same fold version."""
    try:
        state = json.loads(str(row["state"]))
    except (ValueError, RecursionError):
        state = None
    made_by = state.get("fold") if isinstance(state, dict) else None
    if row["fold_version"] != made_by:
        differences.add(int(row["state_version"]), "contexts", "fold_version", row["fold_version"], made_by)


def _compare_state(differences: Differences, row: Mapping[str, Any], state: State, at: int) -> None:
    text = str(row["state"]).encode()
    if text == stored.dump(state):
        return
    try:
        was = stored.load(text)
    except stored.StoredStateError as error:
        differences.add(at, "contexts", "state", str(error), "a state")
        return
    for path, stored_value, expected_value in state_differences(was, state):
        differences.add(at, "contexts", path, stored_value, expected_value)


def state_differences(was: State, expected: State) -> Iterable[tuple[str, object, object]]:
    """Yields the fields in which two states differ, by their paths in JSON."""
    stored_text, expected_text = stored.dump(was), stored.dump(expected)
    if stored_text != expected_text:
        yield from _paths(json.loads(stored_text), json.loads(expected_text), "state")


def _paths(was: object, expected: object, path: str) -> Iterable[tuple[str, object, object]]:
    """Yields the places at which two JSON values differ, each with its path."""
    if isinstance(was, dict) and isinstance(expected, dict):
        for name in sorted(was.keys() | expected.keys()):
            yield from _paths(was.get(name), expected.get(name), f"{path}.{name}")
    elif was != expected:
        yield path, was, expected
