"""Derived ids are the same in every release, because they are stored and sent to other programs."""

from uuid import uuid5

import pytest

from frameledger.derived import COPIES, EFFECTS, KEYS, RUNS, copy_id, effect_id, idempotency_key, run_id

IDS = {
    "of a run": (
        (run_id, "call-17", 7),
        uuid5(RUNS, "7:call-17"),
        "0c22c580-2e36-5ef4-8ee3-6a7f6dce0cae",
    ),
    "of an effect": (
        (effect_id, "cancel", "call-17", 7, "c1"),
        uuid5(EFFECTS, "cancel:7:2:c1:call-17"),
        "fc524a64-4e12-5ece-bfdd-ea058ec9190d",
    ),
    "that makes a request of a call idempotent": (
        (idempotency_key, "call-17", 7, 1, "c1"),
        uuid5(KEYS, "7:1:c1:call-17"),
        "6cde61f7-513d-58b8-b140-f01ebd86a956",
    ),
    "of a frame that was copied": (
        (copy_id, "fork", "call-17", "7", "call-18"),
        uuid5(COPIES, "fork:7:7:call-17:call-18"),
        "42a2b79f-7eb8-500e-a8eb-aef830d09611",
    ),
}


@pytest.mark.parametrize(("derivation", "by_the_standard", "for_ever"), IDS.values(), ids=IDS)
def test_an_id_is_a_uuid_of_the_standard_and_never_another(derivation, by_the_standard, for_ever):
    derive, *parts = derivation
    assert derive(*parts) == str(by_the_standard) == for_ever
