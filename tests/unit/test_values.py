"""A value is frozen for the type checker, and an ordinary small object at run time."""

from pathlib import Path
from typing import Any

import pytest
from tests.unit.type_checking import errors_in

from frameledger.values import replace, value


@value
class Point:
    x: int
    y: int = 0
    tags: tuple[str, ...] = ()


@value
class Wrapped:
    inner: Point


MISUSE = """\
from frameledger.values import replace, value

@value
class Point:
    x: int
    y: int = 0

point = Point(1)
point.x = 2
point.z = 2
Point()
Point("1")
replace(point, x="2")
replace(point, z=2)
moved: str = replace(point, x=2)
"""


def test_the_type_checker_refuses_to_change_a_value_or_to_make_a_wrong_one(tmp_path: Path) -> None:
    (tmp_path / "misuse.py").write_text(MISUSE, encoding="utf-8")
    found = [error.split(": ", 1) for error in errors_in(tmp_path)["misuse.py"]]
    lines = MISUSE.splitlines()
    wrong = lines[lines.index("point.x = 2") :]
    assert [lines[int(number) - 1] for number, _ in found] == wrong
    assert "read-only" in found[0][1]


def test_replace_makes_a_copy_with_some_fields_changed_and_leaves_the_old_one() -> None:
    old = Point(1, 2, ("a",))
    new = replace(old, y=3)
    assert new == Point(1, 3, ("a",))
    assert old == Point(1, 2, ("a",))
    assert new.tags is old.tags


def test_replacing_nothing_gives_an_equal_value() -> None:
    assert replace(Point(1, 2)) == Point(1, 2)


def test_a_value_of_one_field_is_replaced_like_any_other() -> None:
    assert replace(Wrapped(Point(1)), inner=Point(2)) == Wrapped(Point(2))


def test_values_are_equal_and_hash_by_their_fields() -> None:
    assert Point(1, 2) == Point(1, 2) != Point(2, 1)
    assert len({Point(1, 2), Point(1, 2), Point(2, 1)}) == 2
    same: Any = (1, 2, ())
    assert Point(1, 2) != same


def test_a_value_has_no_other_attributes_than_its_fields() -> None:
    point: Any = Point(1)
    assert not hasattr(point, "__dict__")
    with pytest.raises(AttributeError):
        point.z = 1
