"""A reader of plain YAML, for a test that needs one file read and no library for it.

It knows mappings by indentation, lists of strings, and values that are JSON too: strings in double quotes, numbers,
flow lists, `{}`. What it accepts, every reader of YAML understands in the same way; what else YAML has it refuses.
"""

import json
import re
from typing import Any

LINE = re.compile(r"(?P<indent> *)(?:(?P<key>[A-Za-z_][A-Za-z0-9_.-]*):|-)(?: (?P<value>\S.*))?")


def read(text: str) -> dict[str, Any]:
    """The mapping that the text is. Raises ValueError with the number of the line that is not plain."""
    root: dict[str, Any] = {}
    # The mappings and lists that are open, each with the column of its entries; None until its first entry says.
    opened: list[tuple[int | None, Any, Any]] = [(0, root, None)]
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        found = LINE.fullmatch(line)
        if found is None:
            raise ValueError(f"line {number} is not plain: {line}")
        column = len(found["indent"])
        while opened[-1][0] is not None and column < opened[-1][0]:
            opened.pop()
        at, holder, name = opened[-1]
        if at is None:
            if column <= opened[-2][0]:
                raise ValueError(f"line {number}: nothing stands under {name}")
            opened[-2][1][name] = holder = {} if found["key"] else []
            opened[-1] = (column, holder, name)
        elif column != at:
            raise ValueError(f"line {number} begins in a column of its own")
        _enter(holder, found["key"], found["value"], number, opened)
    if opened[-1][0] is None:
        raise ValueError(f"nothing stands under {opened[-1][2]}")
    return root


def _enter(holder: Any, key: str | None, value: str | None, number: int, opened: list[Any]) -> None:
    if isinstance(holder, dict) != (key is not None):
        raise ValueError(f"line {number}: a list and a mapping in one")
    if key is None:
        holder.append(_scalar(value, number))
    elif key in holder:
        raise ValueError(f"line {number}: {key} stands here twice")
    elif value is None:
        holder[key] = None
        opened.append((None, None, key))
    else:
        holder[key] = _scalar(value, number)


def _scalar(value: str | None, number: int) -> Any:
    try:
        return json.loads(value or "")
    except ValueError:
        raise ValueError(f"line {number}: {value} is no value of JSON") from None
