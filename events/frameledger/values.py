"""Values: small immutable classes.

`@value` makes a dataclass with slots that the type checker treats as frozen. At run time it is an ordinary one: a
frozen dataclass sets each field through `object.__setattr__`, so a state of eight fields would take 0.9 us to build
instead of 0.2, and `dataclasses.replace` 2 us instead of 0.6, several times for every frame. Nothing in this project
assigns to a value, which mypy checks (`tests/unit/test_values.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar, dataclass_transform

__all__ = ["replace", "value"]

_T = TypeVar("_T")

_FIELDS_OF: dict[type, Callable[[Any], tuple[Any, ...]]] = {}

if TYPE_CHECKING:
    # The checker knows the fields of a value and their types; ours is declared with the same.
    from dataclasses import replace

    @dataclass_transform(frozen_default=True)
    def value(cls: type[_T]) -> type[_T]: ...

else:

    def value(cls):
        value_class = dataclass(slots=True, unsafe_hash=True)(cls)
        names = [field.name for field in fields(value_class)]
        get = attrgetter(*names)
        # A getter of one name returns the field itself, one of several names a tuple.
        _FIELDS_OF[value_class] = get if len(names) > 1 else lambda old: (get(old),)
        return value_class

    def replace(old, **changes):
        """Returns a copy of a value with some fields changed, like `dataclasses.replace`."""
        cls = old.__class__
        new = cls(*_FIELDS_OF[cls](old))
        for name, changed in changes.items():
            setattr(new, name, changed)
        return new
