"""Copies of methods of aiokafka that use other classes than the originals.

aiokafka's consumer uses classes that its modules name as globals. Replacing one there would change it for every
consumer of the process, including those of other programs. A copy of the method with other globals changes nothing in
aiokafka.
"""

from __future__ import annotations

from types import CodeType, FunctionType
from typing import Any


def rebound(method: Any, **names: Any) -> Any:
    """Returns a copy of a method in which these global names have other values.

    Raises AttributeError if the method does not use one of them, because aiokafka has changed.
    """
    for name in names:
        if name not in _used(method.__code__) or name not in method.__globals__:
            raise AttributeError(f"{method.__qualname__} of aiokafka does not use {name}.")
    bound = {**method.__globals__, **names}
    copy = FunctionType(method.__code__, bound, method.__name__, method.__defaults__, method.__closure__)
    copy.__kwdefaults__ = method.__kwdefaults__
    return copy


def _used(code: CodeType) -> set[str]:
    """Returns the global names that the code uses, with those of the functions in it."""
    inner = (one for one in code.co_consts if isinstance(one, CodeType))
    return set(code.co_names).union(*map(_used, inner))
