"""The consequences of the number of crashes at an offset, and of those over its first record alone."""

import pytest

from frameledger_services.projector.crashes import Crashes, PoisonError


@pytest.mark.parametrize(
    ("crashes", "alone", "treatment"),
    [
        (0, 0, "batch"),
        (2, 0, "batch"),
        (3, 0, "isolate"),
        (100, 0, "isolate"),
        (1, 1, "isolate"),
        (100, 1, "isolate"),
        (2, 2, "park"),
        (5, 2, "park"),
        (6, 3, "dead letter"),
        (100, 9, "dead letter"),
    ],
)
@pytest.mark.regression("fault 7")
def test_only_crashes_over_one_record_alone_have_it_parked_or_set_aside(crashes, alone, treatment):
    assert Crashes(crashes, alone).treatment == treatment


def test_a_parked_record_says_how_many_crashed_over_it():
    assert str(PoisonError(Crashes(5, 2))).startswith("5 projectors crashed at this frame, 2 of them")
