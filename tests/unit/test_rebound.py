"""Methods with other classes than those that they name; the originals stay unchanged."""

import pytest

from frameledger_services.event_log.rebound import rebound


class Part:
    """What the method names."""


class Other:
    """What stands in its place."""


class Whole:
    def make(self, other=None, *, kind="parts"):
        return kind, Part(), other


class OtherWhole(Whole):
    make = rebound(Whole.make, Part=Other)


def test_the_copy_uses_the_other_class_and_the_method_its_own():
    assert [type(one.make()[1]) for one in (OtherWhole(), Whole())] == [Other, Part]


def test_the_copy_takes_what_the_method_takes():
    kind, made, other = OtherWhole().make(1, kind="others")
    assert (kind, type(made), other) == ("others", Other, 1)


@pytest.mark.parametrize("name", ["Missing", "other"])
def test_a_method_that_does_not_use_the_name_is_an_error(name):
    with pytest.raises(AttributeError, match=rf"Whole.make of aiokafka does not use {name}"):
        rebound(Whole.make, **{name: Other})
