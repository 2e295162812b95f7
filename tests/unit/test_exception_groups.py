"""Which error of a group is reported."""

from frameledger_services.exception_groups import first, sole

A, B = ValueError("a"), KeyError("b")


def test_the_first_error_is_found_at_any_depth():
    assert first(ExceptionGroup("", [ExceptionGroup("", [A, B]), B])) is A
    assert first(B) is B


def test_a_sole_error_is_found_at_any_depth_and_a_group_of_several_stays_one():
    assert sole(BaseExceptionGroup("", [ExceptionGroup("", [A])])) is A
    two = ExceptionGroup("", [A, B])
    assert sole(two) is two
    assert sole(ExceptionGroup("", [two])) is two
    assert sole(A) is A
